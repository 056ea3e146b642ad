# SPDX-License-Identifier: MIT
# A 32-bit program under the 64-bit kernel.
/bin/user32
