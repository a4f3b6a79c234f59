/* Gives a program on emulated devices the stand-in for NCCL. */
#include "tests/cuda/nccl_stand_in.h"

[[maybe_unused]] static const bool is_given = (nccl_stand_in(NCCL_WORKS), true);
