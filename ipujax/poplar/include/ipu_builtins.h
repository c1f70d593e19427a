// The intrinsics in scalar form.
#pragma once
#include <ipudef.h>
