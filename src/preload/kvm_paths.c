// SPDX-License-Identifier: MIT
/*
 * The paths that are ours: /dev/kvm and what /sys says about KVM's modules. A host may have a KVM
 * of its own, with other parameters and of the other vendor; nothing of it shows. Paths are
 * compared as they are written: relative ones, links and other spellings are not ours. Any thread;
 * no state but the environment.
 */
#include <stdlib.h>
#include <string.h>

#include "preload/preload.h"

struct param {
	const char *module, *name, *text;
};

static const struct param params[] = {
#define PARAM(module, name, value) { #module, #name, value "\n" },
#include "preload/params.def"
#undef PARAM
};

/* True if path begins with word and the word ends there; *rest is what follows. */
static bool begins(const char *path, const char *word, const char **rest)
{
	size_t n = strlen(word);

	if (strncmp(path, word, n) || (path[n] && path[n] != '/'))
		return false;
	*rest = path + n;
	return true;
}

static bool is_module(const char *name)
{
	const struct model *model = preload_model();

	if (!strcmp(name, "kvm"))
		return true;
	return model && !strcmp(name, model->is_amd ? "kvm_amd" : "kvm_intel");
}

/* One of them is a choice of the user's: `vpmu kvm --pmu off`. */
static const char *text_of(const struct param *param)
{
	const char *pmu = getenv("VPMU_PMU");

	if (!strcmp(param->name, "enable_pmu") && pmu && !strcmp(pmu, "off"))
		return "N\n";
	return param->text;
}

/* rest: what follows /sys/module/kvm, /sys/module/kvm_intel or /sys/module/kvm_amd. */
static enum path_kind module_lookup(const char *module, const char *rest, const char **text)
{
	if (!is_module(module))
		return PATH_ABSENT;
	if (!*rest || !strcmp(rest, "/") || !strcmp(rest, "/parameters") ||
	    !strcmp(rest, "/parameters/"))
		return PATH_FOLDER;
	if (!begins(rest, "/parameters", &rest))
		return PATH_ABSENT;
	for (u32 i = 0; i < ARRAY_SIZE(params); i++)
		if (!strcmp(params[i].module, module) && !strcmp(params[i].name, rest + 1)) {
			*text = text_of(&params[i]);
			return PATH_PARAM;
		}
	return PATH_ABSENT;
}

enum path_kind path_lookup(const char *path, const char **text)
{
	static const char modules[] = "/sys/module/";
	static const char *const names[] = { "kvm", "kvm_intel", "kvm_amd" };
	const char *rest;

	if (!path || path[0] != '/')
		return PATH_OTHER;
	if (!strcmp(path, "/dev/kvm"))
		return PATH_KVM;
	if (strncmp(path, modules, sizeof(modules) - 1))
		return PATH_OTHER;
	for (u32 i = 0; i < ARRAY_SIZE(names); i++)
		if (begins(path + sizeof(modules) - 1, names[i], &rest))
			return module_lookup(names[i], rest, text);
	return PATH_OTHER;
}
