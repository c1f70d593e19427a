// printf, to the standard output of the host.
#pragma once
#include <cstdio>
