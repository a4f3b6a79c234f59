/* Carries out instructions that the machine lacks, as their manual defines them, so that a path can
 * be run where no processor has its instructions: those of AMX for bytes, and vpdpbusd in the form
 * that AVX-VNNI brought. */
#ifndef PENSTOCK_TESTS_INSTRUCTIONS_H
#define PENSTOCK_TESTS_INSTRUCTIONS_H

/* From here on, such an instruction that the machine refuses is carried out. Others end the process
 * as ever. */
void instructions_carry_out(void);

/* How many were carried out so far, by all threads. */
long instructions_carried_out(void);

#endif
