// SPDX-License-Identifier: MIT
/*
 * The command line that vpmu-qemu starts QEMU with, made of the one that libvirt wrote.
 *
 * libvirt offers domains of type 'kvm' only where there is a /dev/kvm, so domains of type 'qemu',
 * meant for TCG, run on vpmu too. Three of QEMU's options say what that takes, and all others are
 * passed on word by word:
 *
 *   -accel tcg, -machine …,accel=tcg   KVM instead. What TCG alone can do is refused: a guest that
 *                                      silently lacks it would be another one than was asked for.
 *   -cpu qemu64                        QEMU's default, which libvirt writes out and which has no
 *                                      PMU: vpmu's own model (-cpu host) instead.
 *   -cpu MODEL                         vpmu's, if it has that processor: QEMU's models have no PMU,
 *                                      and not always the numbers of the processor that they are
 *                                      named after. Any other is QEMU's, which with KVM has the
 *                                      vendor of the host: of a model of vpmu, to be chosen so.
 *
 * libvirt asks what a QEMU can do on a machine without a processor, first with accel=kvm:tcg, and
 * again with accel=tcg if the first had KVM. A QEMU that has KVM where libvirt itself sees no
 * /dev/kvm is taken for one that has changed, and asked again on every occasion, for seconds each.
 * So there the first question is answered by TCG. It is the only thing that ever runs on TCG.
 */
#include "cli/qemu_line.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct maker {
	struct qemu_line *line;
	bool has_kvm;
	bool has_accel; /* in whatever option */
	bool has_accel_option, has_cpu;
	bool has_no_processor; /* -machine none */
	bool is_incomplete;    /* the last option lacks its value, as QEMU will say */
	u32 from_tcg;	       /* the word that was -accel's value, "tcg"; 0: none */
};

__attribute__((format(printf, 2, 3))) static char *add(struct maker *maker, const char *fmt, ...)
{
	struct qemu_line *line = maker->line;
	char *word;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&word, fmt, args) < 0) {
		line->is_broken = true;
		word = NULL;
	} else {
		line->word[line->count++] = word;
	}
	va_end(args);
	return word;
}

/* The first refusal counts. */
__attribute__((format(printf, 2, 3))) static void refuse(struct maker *maker, const char *fmt, ...)
{
	va_list args;

	if (maker->line->refusal)
		return;
	va_start(args, fmt);
	if (vasprintf(&maker->line->refusal, fmt, args) < 0) {
		maker->line->is_broken = true;
		maker->line->refusal = NULL;
	}
	va_end(args);
}

/* --- lists: "type,key=value,flag", where two commas are one of the value --- */

static size_t item_length(const char *item)
{
	size_t n = 0;

	for (;; n += 2) {
		n += strcspn(item + n, ",");
		if (item[n] != ',' || item[n + 1] != ',')
			return n;
	}
}

static bool is_text(const char *text, size_t length, const char *wanted)
{
	return length == strlen(wanted) && !strncmp(text, wanted, length);
}

/* The value, if the item's key is this one. */
static const char *value_of(const char *item, const char *key)
{
	size_t n = strlen(key);

	return !strncmp(item, key, n) && item[n] == '=' ? item + n + 1 : NULL;
}

/* --- accelerators --- */

#define TYPE "the domain's type must be 'qemu' or 'kvm'"
#define KEY  "accel="

static bool is_help(const char *value)
{
	return !strcmp(value, "help") || !strcmp(value, "?");
}

/* Whether a list with colons has an accelerator. */
static bool lists(const char *list, size_t length, const char *wanted)
{
	for (size_t n, at = 0; at < length; at += n + 1) {
		n = strcspn(list + at, ":,");
		if (is_text(list + at, n, wanted))
			return true;
	}
	return false;
}

/* What a list becomes, never of more letters, or NULL. */
static const char *choose_accel(const struct maker *maker, const char *list, size_t length)
{
	bool kvm = lists(list, length, "kvm"), tcg = lists(list, length, "tcg");

	if (kvm && tcg && maker->has_no_processor && !maker->has_kvm)
		return "tcg";
	return kvm || tcg ? "kvm" : NULL;
}

/* Puts the chosen accelerator in place of the list. Returns the new length. */
static size_t replace_accel(struct maker *maker, char *list, size_t length)
{
	const char *accel = choose_accel(maker, list, length);

	if (!accel) {
		refuse(maker, "-machine " KEY "%.*s: " TYPE, (int)length, list);
		return length;
	}
	memcpy(list, accel, strlen(accel));
	memmove(list + strlen(accel), list + length, strlen(list + length) + 1);
	return strlen(accel);
}

static void rewrite_machine(struct maker *maker, const char *option, const char *value)
{
	char *item;

	add(maker, "%s", option);
	item = add(maker, "%s", value);
	for (size_t n; item && *item; item += n + (item[n] == ',')) {
		n = item_length(item);
		if (is_text(item, n, "none") || is_text(item, n, "type=none"))
			maker->has_no_processor = true;
		if (strncmp(item, KEY, strlen(KEY)))
			continue;
		n = strlen(KEY) + replace_accel(maker, item + strlen(KEY), n - strlen(KEY));
		maker->has_accel = true;
	}
}

/* The accelerator that a value of -accel names: its first item, or the last accel=. */
static const char *name_accel(const char *value)
{
	const char *name = value;

	for (size_t n; *value; value += n + (value[n] == ',')) {
		n = item_length(value);
		name = value_of(value, "accel") ?: name;
	}
	return name;
}

/* Each vCPU of KVM has a thread of its own, as those of thread=multi. */
static bool is_harmless(const char *property, size_t length)
{
	return is_text(property, length, "tcg") || is_text(property, length, "thread=multi") ||
	       value_of(property, "accel");
}

static void check_tcg_properties(struct maker *maker, const char *list)
{
	for (size_t n; *list; list += n + (list[n] == ',')) {
		n = item_length(list);
		if (!is_harmless(list, n))
			refuse(maker,
			       "-accel tcg: vpmu has no '%.*s', it translates without TCG; remove "
			       "it from the domain's <features><tcg>",
			       (int)n, list);
	}
}

static void add_kvm(struct maker *maker, const char *option, const char *value)
{
	if (!maker->from_tcg) {
		add(maker, "%s", option);
		add(maker, "%s", value);
		return;
	}
	free(maker->line->word[maker->from_tcg]);
	maker->line->word[maker->from_tcg] = strdup(value);
	maker->line->is_broken |= !maker->line->word[maker->from_tcg];
	maker->from_tcg = 0;
}

/* QEMU tries several one after the other: of KVM and TCG, only KVM stays. */
static void rewrite_accel(struct maker *maker, const char *option, const char *value)
{
	const char *name = name_accel(value);
	size_t length = item_length(name);

	if (is_help(value) || is_text(name, length, "kvm")) {
		add_kvm(maker, option, value);
	} else if (is_text(name, length, "tcg")) {
		check_tcg_properties(maker, value);
		if (!maker->has_accel_option) {
			add(maker, "%s", option);
			add(maker, "kvm");
			maker->from_tcg = maker->line->count - 1;
		}
	} else {
		refuse(maker, "-accel %.*s: " TYPE, (int)length, name);
	}
	maker->has_accel = maker->has_accel_option = true;
}

static void note_kvm(struct maker *maker, const char *option, const char *value)
{
	(void)value;
	add(maker, "%s", option);
	maker->has_accel = true;
}

/* --- processors --- */

/* QEMU's names of processors that vpmu has, with any suffix (-IBRS, -noTSX, -v2). */
static const struct processor {
	const char *name, *model;
} processors[] = {
	{ "Skylake-Server", "skylake" },
	{ "Icelake-Server", "icelake" },
	{ "SapphireRapids", "sapphirerapids" },
	{ "EPYC-Milan", "milan" },
	{ "EPYC-Genoa", "genoa" },
};

static const char *find_model(const char *name, size_t length)
{
	for (u32 i = 0; i < ARRAY_SIZE(processors); i++) {
		size_t n = strlen(processors[i].name);

		if (length >= n && !strncmp(name, processors[i].name, n) &&
		    (length == n || name[n] == '-'))
			return processors[i].model;
	}
	return NULL;
}

/* Names of AMD's processors, which Hygon's is one of, begin so. */
static const char *const amd_names[] = { "EPYC", "Opteron_", "Dhyana", "athlon", "phenom" };

static enum qemu_vendor find_vendor(const char *name)
{
	for (u32 i = 0; i < ARRAY_SIZE(amd_names); i++)
		if (!strncmp(name, amd_names[i], strlen(amd_names[i])))
			return VENDOR_AMD;
	return VENDOR_INTEL;
}

static bool is_host(const char *name, size_t length)
{
	return is_text(name, length, "host") || is_text(name, length, "max");
}

static bool is_default(const char *name, size_t length)
{
	return is_text(name, length, "qemu64") || is_text(name, length, "qemu64-v1");
}

static void rewrite_cpu(struct maker *maker, const char *option, const char *value)
{
	size_t length = strcspn(value, ",");
	const char *features = value + length;

	maker->has_cpu = true;
	maker->line->model = find_model(value, length);
	maker->line->vendor = VENDOR_ANY;
	add(maker, "%s", option);
	if (maker->line->model || is_default(value, length)) {
		add(maker, "host%s", features);
	} else {
		add(maker, "%s", value);
		if (!is_host(value, length))
			maker->line->vendor = find_vendor(value);
	}
}

/* --- the line --- */

/* Options of QEMU 7.2 to 10 without a value. Every other takes the next word, whatever it is. */
// clang-format off
static const char *const flags[] = {
	"S", "async-teardown", "audio-help", "daemonize", "enable-kvm", "enable-sync-profile",
	"full-screen", "h", "help", "jitdump", "mem-prealloc", "no-acpi", "no-fd-bootchk", "no-hpet",
	"no-reboot", "no-shutdown", "no-user-config", "nodefaults", "nographic",
	"only-migratable", "perfmap", "portrait", "preconfig", "s", "singlestep", "snapshot",
	"usb", "version", "win2k-hack", "xen-attach", "xen-domid-restrict",
};
// clang-format on

static const struct rewrite {
	const char *option;
	void (*rewrite)(struct maker *maker, const char *option, const char *value);
} rewrites[] = {
	{ "accel", rewrite_accel }, { "machine", rewrite_machine }, { "M", rewrite_machine },
	{ "enable-kvm", note_kvm }, { "cpu", rewrite_cpu },
};

/* What TCG alone can do, for which QEMU has options of their own. */
static const char *const tcg_only[] = { "icount",  "plugin",  "singlestep",
					"perfmap", "jitdump", "tb-size" };

static bool is_among(const char *name, const char *const *names, u32 count)
{
	for (u32 i = 0; i < count; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

static void rewrite(struct maker *maker, const char *name, const char *option, const char *value)
{
	if (is_among(name, tcg_only, ARRAY_SIZE(tcg_only)))
		refuse(maker,
		       "%s: vpmu translates without TCG; remove it from the domain's "
		       "<qemu:commandline>, or let QEMU itself be its <emulator>",
		       option);
	for (u32 i = 0; i < ARRAY_SIZE(rewrites); i++)
		if (!strcmp(rewrites[i].option, name)) {
			rewrites[i].rewrite(maker, option, value);
			return;
		}
	add(maker, "%s", option);
	if (value)
		add(maker, "%s", value);
}

/* An option begins with one dash or two; anything else is the name of a disk. Returns the words
 * taken. */
static u32 take_option(struct maker *maker, char *const *words)
{
	const char *option = words[0], *name = option + 1 + (option[0] == '-' && option[1] == '-');
	bool is_option = option[0] == '-';
	bool has_value = is_option && !is_among(name, flags, ARRAY_SIZE(flags));

	maker->is_incomplete = has_value && !words[1];
	if (!is_option || maker->is_incomplete)
		add(maker, "%s", option);
	else
		rewrite(maker, name, option, has_value ? words[1] : NULL);
	return has_value && words[1] ? 2 : 1;
}

/* QEMU's defaults are TCG and qemu64. */
static void add_defaults(struct maker *maker)
{
	if (maker->is_incomplete)
		return;
	if (!maker->has_accel) {
		add(maker, "-accel");
		add(maker, "kvm");
	}
	if (!maker->has_cpu && !maker->has_no_processor) {
		add(maker, "-cpu");
		add(maker, "host");
	}
}

#define DEFAULT_WORDS 4

void qemu_line_make(struct qemu_line *line, const char *program, char *const *argv, bool has_kvm)
{
	struct maker maker = { .line = line, .has_kvm = has_kvm };
	u32 count = 1;

	*line = (struct qemu_line){ 0 };
	while (argv[count])
		count++;
	line->word = calloc(count + DEFAULT_WORDS + 1, sizeof(*line->word));
	line->is_broken = !line->word;
	if (line->is_broken)
		return;
	add(&maker, "%s", program);
	for (u32 i = 1; i < count;)
		i += take_option(&maker, argv + i);
	add_defaults(&maker);
}

void qemu_line_free(struct qemu_line *line)
{
	for (u32 i = 0; i < line->count; i++)
		free(line->word[i]);
	free(line->word);
	free(line->refusal);
}
