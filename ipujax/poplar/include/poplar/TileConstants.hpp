// Numbers of the chip's registers, which code behind __IPU__ alone uses: there are none here.
#pragma once
