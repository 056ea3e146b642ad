# SPDX-License-Identifier: MIT
# The one Makefile. Sources are found by wildcard: adding a file is adding a file. All output is under build/.
#
#   make                      build with gcc
#   make CC=clang O=build/clang
#   make SAN=address          (undefined, thread) in build/san-address/
#   make CHECK=1              an engine that checks its code pointers (src/engine/code_check.h), in build/check/

ifeq ($(origin CC),default)
CC := gcc
endif
AR     := ar
comma  := ,
SAN    :=
CHECK  :=
FUZZ   :=
O      := build$(if $(SAN),/san-$(SAN))$(if $(CHECK),/check)
WERROR :=
V      :=
prefix := /usr/local

# --- what is built of what ---------------------------------------------------------------------------------------

# Folders, and the rooms in them, whose code runs while guest vector state is live in the host's registers: general registers only, no libc.
BARE_DIRS := cpu engine mem pipeline timing
# Their exceptions: creation and destruction, and what is called after fpu_save(): decoding, more memory for code.
HOSTED := src/engine/decode.c src/engine/engine.c src/engine/code_memory.c src/engine/runtime/code_cache_memory.c \
	src/engine/translate/emit_entry.c src/timing/coherence_memory.c

# The sources of folders and of the rooms in them.
sources = $(foreach d,$(1),$(wildcard $(d)/*.c $(d)/*/*.c))

DIRS         := base x86 mem timing pipeline cpu irq hwpmu pmu hostperf engine vm kvm
CORE_SRCS    := $(call sources,$(addprefix src/,$(DIRS)))
PRELOAD_SRCS := $(call sources,src/preload)
# The command; exec/guest is a program of its own.
CLI_SRCS     := $(filter-out exec/guest/%,$(call sources,cli exec))
# The first process of vpmu exec's guests, and what it shares with vpmu.
INIT_SRCS    := $(wildcard exec/guest/*.c) exec/wire.c
WORK_SRCS    := $(wildcard bench/work/*.c)
TEST_SRCS    := $(wildcard tests/*/*_test.c)
# Whatever else lies in the test folders is a library for all tests; but tests/exec builds what it preloads, which defines
# functions of libc, itself.
TESTLIB_SRCS := $(filter-out $(TEST_SRCS) tests/exec/%,$(wildcard tests/*/*.c tests/*/*.S))
# Tests that contain the border with libc instead of having it preloaded, so that a sanitizer sees everything.
BORDER_TESTS := badinput_test

# Tests in which calls of libc that our own objects make can fail: the linker sends them to tests/failing/fail.c.
FAILING_CALLS := $(shell sed -n 's/^CALL.\([a-z0-9_]*\),.*/\1/p' tests/failing/calls.def) free munmap
FAILING_TESTS := $(patsubst tests/%.c,%,$(wildcard tests/failing/*_test.c))

# The embeddable core: freestanding, with headers that include one another from one folder.
LIB_SRCS    := $(wildcard src/hwpmu/*.c src/pmu/*.c src/hostperf/*.c) src/x86/events.c src/x86/metrics.c src/x86/models.c src/x86/pmu_models.c src/x86/pmu_msrs.c
LIB_HEADERS := vpmu.h base/must.h base/types.h base/version.h hostperf/hostperf.h hwpmu/branch.h hwpmu/hwpmu.h hwpmu/ibs.h hwpmu/msr.h hwpmu/observe.h hwpmu/pebs.h hwpmu/port.h \
	hwpmu/retire.def hwpmu/retire.h hwpmu/shadow.h pmu/backend.h pmu/filter.h pmu/pmu.h x86/events.h x86/ibs.h x86/lbr.h x86/metrics.h x86/models.h x86/pebs.h x86/pmu_models.h x86/pmu_msrs.h x86/pmu_regs.h

BARE_SRCS := $(filter-out $(HOSTED),$(call sources,$(addprefix src/,$(BARE_DIRS)))) \
	src/base/bytes.c src/base/guarded.c src/base/kept.c

objects = $(patsubst %,$(O)/%.o,$(basename $(1)))

CORE_OBJS    := $(call objects,$(CORE_SRCS))
PRELOAD_OBJS := $(call objects,$(PRELOAD_SRCS))
CLI_OBJS     := $(call objects,$(CLI_SRCS))
TESTLIB_OBJS := $(call objects,$(TESTLIB_SRCS))
BARE_OBJS    := $(call objects,$(BARE_SRCS))
LIB_OBJS     := $(call objects,$(LIB_SRCS))
EXAMPLE_OBJS := $(call objects,$(wildcard examples/*/*.c))
EXAMPLES     := $(EXAMPLE_OBJS:.o=)
OBJS         := $(CORE_OBJS) $(PRELOAD_OBJS) $(CLI_OBJS) $(TESTLIB_OBJS) $(EXAMPLE_OBJS) \
	$(call objects,$(TEST_SRCS) $(wildcard tests/fuzz/targets/*.c tests/fuzz/driver/*.c))

TESTS   := $(patsubst tests/%.c,$(O)/tests/%,$(TEST_SRCS))

# Fuzz targets: programs that replay inputs, in every build; with libFuzzer in that of `make fuzz`.
FUZZ_SRCS := $(wildcard tests/fuzz/targets/*.c)
REPLAYS   := $(patsubst tests/%.c,$(O)/tests/%,$(FUZZ_SRCS))
FUZZERS   := $(patsubst tests/fuzz/targets/%.c,$(O)/fuzz/%,$(FUZZ_SRCS))

# --- how ---------------------------------------------------------------------------------------------------------

LINUX := build/linux-6.12

CPPFLAGS := -D_GNU_SOURCE= -Isrc -Itests -I. -isystem $(LINUX)/usr/include
CFLAGS   := -O2 -g
FLAGS    := -std=gnu11 -Wall -Wextra $(if $(WERROR),-Werror) -fno-omit-frame-pointer -fPIC -fvisibility=hidden
FLAGS    += $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all)
FLAGS    += $(if $(CHECK),-DCHECK_CODE=1)
FLAGS    += $(if $(FUZZ),-fsanitize=fuzzer-no-link$(comma)address)
BARE     := -mgeneral-regs-only -fno-tree-loop-distribute-patterns
# Coverage of code that runs while guest vector state is live: counters only. What libFuzzer has called for comparisons
# and indirect calls uses vector registers.
QUIET    := $(if $(FUZZ),-fno-sanitize-coverage=trace-cmp$(comma)indirect-calls$(comma)stack-depth)
# The number by which kept translations know their build (src/vm/kept.c).
LDLIBS   := -lZydis -pthread -ldl -Wl,--build-id=sha1

ifeq ($(findstring clang,$(CC)),clang)
# clang's name for the gcc flag above.
BARE := $(subst -fno-tree-loop-distribute-patterns,-fno-builtin,$(BARE))
# It still calls libc to copy a struct: such calls go to src/base/bytes.c.
BARE_CALLS := $(if $(SAN),,&& objcopy --redefine-sym memcpy=bytes_memcpy --redefine-sym memset=bytes_memset)
endif
ifeq ($(SAN),thread)
# The sanitizer's own functions use vector registers; engine code cannot call them.
BARE += -fno-sanitize=thread
FLAGS += -Wno-tsan # says that it does not understand fences
endif

Q   := $(if $(V),,@)
say  = @$(if $(V),true,echo '  $(1) $@')

.PHONY: all tests fuzzers demo check test fuzz bench install deb container clean help
.DELETE_ON_ERROR:

all: $(O)/lab $(O)/libvpmu-kvm.so $(O)/vpmu $(O)/vpmu-qemu $(O)/vpmu-init $(O)/vpmu-kernel $(O)/vpmu-release $(O)/libvpmu.a

tests: all $(TESTS) $(REPLAYS) $(O)/tests/failing/vpmu $(if $(SAN)$(CHECK),,$(O)/tests/chance/vpmu $(O)/tests/chance/restless/vpmu) $(EXAMPLES)

fuzzers: $(FUZZERS)

$(BARE_OBJS): EXTRA := $(BARE) $(QUIET)
$(BARE_OBJS): FINISH = $(if $(BARE_CALLS),$(BARE_CALLS) $@)
$(BARE_OBJS): Makefile # which of them there are, and how they are compiled, must never be that of another day
# The translator consists of small functions: inlined, they take 4 % of its time less; those of the timing model, 15 %. Who asks
# for something else gets that.
$(call objects,$(call sources,src/engine) $(call sources,src/timing)): EXTRA += $(if $(filter -O2,$(CFLAGS)),$(if $(SAN),,-O3))
# The functions of the timing model have more values than registers: a frame pointer less is 4 % of their instructions.
$(call objects,$(call sources,src/timing)): EXTRA += $(if $(SAN),,-fomit-frame-pointer)
ifeq ($(SAN),undefined)
# Programs may pass misaligned and null pointers; nothing but addresses is computed from them.
$(call objects,$(wildcard src/kvm/*.c)): EXTRA := -fno-sanitize=alignment,null
endif
$(LIB_OBJS): EXTRA := -ffreestanding -mgeneral-regs-only $(QUIET)

$(O)/%.o: %.c | $(LINUX)/.complete
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) $(CPPFLAGS) $(EXTRA) -MMD -MP -c -o $@ $< $(FINISH)

$(O)/%.o: %.S | $(LINUX)/.complete
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<

$(LINUX)/.complete:
	scripts/linux

# The lab is a script, found beside the command.
$(O)/lab:
	@mkdir -p $(O)
	@ln -sfn $(CURDIR)/lab $@

$(O)/libvpmu-core.a: $(CORE_OBJS)
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $^

$(O)/libvpmu.a: $(LIB_OBJS)
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $^

# The command without its main(): tests and fuzz targets contain parts of it.
$(O)/libcli.a: $(filter-out $(O)/cli/main.o,$(CLI_OBJS))
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $^

$(O)/libtest.a: $(TESTLIB_OBJS)
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $^

$(O)/libvpmu-kvm.so: $(CORE_OBJS) $(PRELOAD_OBJS) src/preload/export.map
	$(call say,LD)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) -shared $(if $(SAN),,-Wl$(comma)-z$(comma)defs) -Wl,--version-script=src/preload/export.map -o $@ \
		$(CORE_OBJS) $(PRELOAD_OBJS) $(LDLIBS)

$(O)/vpmu: $(CLI_OBJS) $(O)/libvpmu-core.a
	$(call say,LD)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) -o $@ $^ $(LDLIBS)

# libvirt's <emulator>: the command knows itself by this name.
$(O)/vpmu-qemu: $(O)/vpmu
	@ln -sfn vpmu $@

# Never with a sanitizer: it runs alone in a guest.
$(O)/vpmu-init: $(INIT_SRCS) $(wildcard exec/*.h exec/guest/*.h)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) -std=gnu11 -Wall -Wextra $(if $(WERROR),-Werror) -O2 $(CPPFLAGS) -static -s -o $@ $(INIT_SRCS)

$(O)/vpmu-kernel $(O)/vpmu-release: $(O)/%: scripts/%
	$(Q)install -D -m 755 $< $@

BORDER_PROGRAMS := $(addprefix $(O)/tests/,$(addprefix fuzz/,$(BORDER_TESTS)) $(FAILING_TESTS))
$(BORDER_PROGRAMS): BORDER := $(PRELOAD_OBJS)
$(BORDER_PROGRAMS): $(PRELOAD_OBJS)
FAILING := $(addprefix -Wl$(comma)--wrap=,$(FAILING_CALLS))
$(addprefix $(O)/tests/,$(FAILING_TESTS)): BORDER += $(FAILING)

TEST_LIBS := $(O)/libtest.a $(O)/libcli.a $(O)/libvpmu-core.a

$(TESTS): $(O)/tests/%: $(O)/tests/%.o $(TEST_LIBS)
	$(call say,LD)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) -o $@ $< $(BORDER) $(TEST_LIBS) -lcmocka $(LDLIBS) -lm

# Targets that talk to the control socket or call ioctl() contain the border with libc, as BORDER_TESTS do.
BORDER_FUZZ := control ioctl state

$(foreach d,tests/fuzz/targets fuzz,$(addprefix $(O)/$(d)/,$(BORDER_FUZZ))): $(PRELOAD_OBJS)

$(REPLAYS): $(O)/tests/fuzz/targets/%: $(O)/tests/fuzz/targets/%.o $(O)/tests/fuzz/driver/entry.o $(O)/tests/fuzz/driver/replay.o \
		$(TEST_LIBS)
	$(call say,LD)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) -o $@ $(filter %.o,$^) $(TEST_LIBS) $(LDLIBS) -lm

$(FUZZERS): $(O)/fuzz/%: $(O)/tests/fuzz/targets/%.o $(O)/tests/fuzz/driver/entry.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(FLAGS) -fsanitize=fuzzer $(CFLAGS) -o $@ $(filter %.o,$^) $(TEST_LIBS) $(LDLIBS) -lm

# A vpmu whose own processes have their calls fail: tests/failing/exec.
$(O)/tests/failing/vpmu: $(CLI_OBJS) $(O)/tests/failing/fail.o $(O)/tests/failing/fail_environment.o $(O)/libvpmu-core.a
	$(call say,LD)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) $(FAILING) -o $@ $^ $(LDLIBS)

# A vpmu whose processor has a source of chance, for tests/exec/diverge: each call of the wrapped helper goes to
# tests/chance. It finds its parts beside itself.
CHANCE := $(O)/tests/chance
$(CHANCE)/host_tsc.o: EXTRA := $(BARE)

$(CHANCE)/libvpmu-kvm.so: $(O)/libvpmu-kvm.so $(CHANCE)/host_tsc.o
	$(call say,LD)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) -shared $(if $(SAN),,-Wl$(comma)-z$(comma)defs) -Wl,--version-script=src/preload/export.map \
		-Wl,--wrap=sys_rdtsc -o $@ $(CORE_OBJS) $(PRELOAD_OBJS) $(CHANCE)/host_tsc.o $(LDLIBS)

# And one whose processor stops where chance wants, and forgets: tests/exec/deterministic --long.
RESTLESS := $(CHANCE)/restless

$(RESTLESS)/libvpmu-kvm.so: $(O)/libvpmu-kvm.so $(CHANCE)/restless.o
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) -shared $(if $(SAN),,-Wl$(comma)-z$(comma)defs) -Wl,--version-script=src/preload/export.map \
		-Wl,--wrap=engine_run -o $@ $(CORE_OBJS) $(PRELOAD_OBJS) $(CHANCE)/restless.o $(LDLIBS)

$(RESTLESS)/vpmu: $(O)/vpmu $(O)/vpmu-init $(O)/vpmu-kernel $(O)/vpmu-release | $(RESTLESS)/libvpmu-kvm.so
	$(Q)ln -f $^ $(@D)

$(CHANCE)/vpmu: $(O)/vpmu $(O)/vpmu-init $(O)/vpmu-kernel $(O)/vpmu-release | $(CHANCE)/libvpmu-kvm.so
	$(Q)ln -f $^ $(@D)

# Benchmarks on the bare engine: bench/precise asks for them.
$(O)/bench/%: $(O)/bench/%.o $(O)/libtest.a $(O)/libvpmu-core.a
	$(call say,LD)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) -o $@ $< $(O)/libtest.a $(O)/libvpmu-core.a $(LDLIBS) -lm

# Hypervisors that embed the library.
$(EXAMPLES): $(O)/%: $(O)/%.o $(O)/libvpmu.a
	$(call say,LD)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) -o $@ $^

# The workloads of the benchmark: one static program, the same on the host and in guests. Its size is what fork and exec
# see, its text is what the compressors compress, so it is the same for every build folder and sanitizer.
# SQLite may load extensions and the linker warns that this needs the shared C library; no workload does.
build/bench/work: $(WORK_SRCS) $(wildcard bench/work/*.h bench/work/*.def)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)gcc -std=gnu11 -O2 -Wall -Wextra -D_GNU_SOURCE -I. -static -o $@ $(WORK_SRCS) -lsqlite3 -lz -llzma -lm -pthread \
		-Wl,--no-warnings

# The manual page of the library.
$(O)/vpmu.3: scripts/manual $(addprefix src/,$(LIB_HEADERS))
	@mkdir -p $(@D)
	$(Q)scripts/manual >$@

# What scripts/freestanding looks at.
$(O)/bare-objects: Makefile $(O)/libvpmu-core.a
	@printf '%s\n' $(BARE_OBJS) >$@

# --- what a user asks for ----------------------------------------------------------------------------------------

demo:
	scripts/deps demo
	$(MAKE) -j$$(nproc) all
	scripts/demo $(O)

check:
	scripts/deps check
	+tests/all --fast

test:
	scripts/deps
	+tests/all $(SAN)

MINUTES := 10
TARGET  :=

fuzz:
	scripts/deps fuzz
	$(MAKE) -j$$(nproc) CC=clang FUZZ=1 CHECK=1 O=build/fuzz/build fuzzers
	tests/fuzz/run --minutes $(MINUTES) $(TARGET)

bench:
	scripts/deps
	$(MAKE) all build/bench/work
	scripts/kernels
	bench/all

install: all $(O)/vpmu.3
	install -D -m 755 $(O)/vpmu $(DESTDIR)$(prefix)/bin/vpmu
	ln -sfn vpmu $(DESTDIR)$(prefix)/bin/vpmu-qemu
	install -D -m 755 $(O)/libvpmu-kvm.so $(DESTDIR)$(prefix)/lib/vpmu/libvpmu-kvm.so
	install -D -m 755 $(O)/vpmu-init $(DESTDIR)$(prefix)/lib/vpmu/vpmu-init
	install -D -t $(DESTDIR)$(prefix)/lib/vpmu -m 755 $(O)/vpmu-kernel $(O)/vpmu-release
	install -D -t $(DESTDIR)$(prefix)/lib/vpmu/lab -m 644 $(wildcard lab/*.py lab/*.c lab/*.html)
	install -D -t $(DESTDIR)$(prefix)/lib/vpmu/lab -m 755 lab/vpmu-lab lab/vpmu-profile lab/vpmu-flame lab/vpmu-history
	install -D -t $(DESTDIR)$(prefix)/share/man/man1 -m 644 docs/man/*.1
	install -D -t $(DESTDIR)$(prefix)/share/man/man3 -m 644 $(O)/vpmu.3
	install -D -t $(DESTDIR)$(prefix)/share/doc/vpmu -m 644 README.md
	install -D -t $(DESTDIR)$(prefix)/share/doc/vpmu/docs -m 644 docs/*.md
	install -D -m 644 scripts/vpmu.bash-completion $(DESTDIR)$(prefix)/share/bash-completion/completions/vpmu
	sed 's|@prefix@|$(prefix)|' examples/metrics/vpmu-exporter.service | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(prefix)/lib/systemd/user/vpmu-exporter.service
	install -D -t $(DESTDIR)$(prefix)/share/vpmu -m 644 examples/metrics/prometheus.yml examples/metrics/grafana.json
	install -D -m 644 $(O)/libvpmu.a $(DESTDIR)$(prefix)/lib/libvpmu.a
	sed -e 's|@prefix@|$(prefix)|' -e "s|@version@|$$(scripts/version)|" src/vpmu.pc.in | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(prefix)/lib/pkgconfig/vpmu.pc
	for h in $(LIB_HEADERS); do install -D -m 644 src/$$h $(DESTDIR)$(prefix)/include/vpmu/$$h || exit; done

deb:
	scripts/deps deb
	$(MAKE) -j$$(nproc) all
	scripts/deb $(O)

container: deb
	scripts/deps container
	scripts/container $(O)/vpmu_$$(scripts/version)_amd64.deb

clean:
	rm -rf build

help:
	@echo 'make                 build build/vpmu and build/libvpmu-kvm.so'
	@echo 'make demo            perf on this host and in a guest, side by side'
	@echo 'make check           the fast tests: under a minute after a build'
	@echo 'make test            everything that CI checks (SAN=address, undefined, thread: with that sanitizer)'
	@echo 'make fuzz            libFuzzer on every target of tests/fuzz/targets, MINUTES=10 each, or TARGET="jump wire"; into build/fuzz/'
	@echo 'make bench           speed of native, vpmu and TCG side by side, into build/bench/'
	@echo 'make install         to $$(DESTDIR)$$(prefix), by default /usr/local'
	@echo 'make deb             a Debian package of it, build/vpmu_VERSION_amd64.deb'
	@echo 'make container       an OCI image with that package, localhost/vpmu, without root and without a registry'
	@echo 'make clean           remove build/'
	@echo 'variables            CC=gcc|clang  SAN=address|undefined|thread  CHECK=1  O=folder  WERROR=1  V=1  CFLAGS="-O2 -g"'

-include $(OBJS:.o=.d)
