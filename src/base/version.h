/* SPDX-License-Identifier: MIT */
/*
 * The version, of the command and of the library (semver.org). While the first number is 0 the
 * second one grows when the library's interface changes incompatibly, the third one when it grows;
 * scripts/abi says which of them is due. scripts/version reads these lines.
 */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

#define VPMU_VERSION_MAJOR 0
#define VPMU_VERSION_MINOR 2
#define VPMU_VERSION_PATCH 0

#define VPMU_VERSION_TEXT(major, minor, patch)	  VPMU_VERSION_TEXT_OF(major, minor, patch)
#define VPMU_VERSION_TEXT_OF(major, minor, patch) #major "." #minor "." #patch
#define VPMU_VERSION				  VPMU_VERSION_TEXT(VPMU_VERSION_MAJOR, VPMU_VERSION_MINOR, VPMU_VERSION_PATCH)

#endif
