/* Emulates instructions that the machine lacks, as their manual defines them, so that their path
 * can be tested on any processor: those of AMX for bytes, and vpdpbusd in the form of AVX-VNNI. */
#ifndef PENSTOCK_TESTS_INSTRUCTIONS_H
#define PENSTOCK_TESTS_INSTRUCTIONS_H

/* From now on, emulates such an instruction if the machine refuses it. Other unknown instructions
 * still end the process. */
void instructions_carry_out(void);

/* Returns the number of emulated instructions so far, of all threads. */
long instructions_carried_out(void);

#endif
