# SPDX-License-Identifier: MIT
# What perf's users do, under bash with the host's perf: each check is a sentence. /tmp has work and spin. With all set,
# all of it.
cd /tmp || exit 1
export PAGER=cat

# Checks run in shells of their own, and so does stat() in them: what has failed is in a file.
fail() {
	echo "FAILED: ${FUNCNAME[1]}: $*" | tee -a failures >&2
}

# stat EVENTS COMMAND…: lines of "event value running%", from perf's fields value, unit, event, time, percent. Without
# random addresses: where the stack is decides about a few instructions of libc's.
stat() {
	setarch -R perf stat -x, -o stat.out -e "$@" >/dev/null 2>stat.err || fail "perf stat: $(cat stat.err)"
	awk -F, '/^[^#]/ && NF > 3 { print $3, $1, $5 }' stat.out
}

value() { # EVENT, of the lines on stdin
	awk -v event="$1" '$1 == event { print $2; exit }'
}

counts_make_sense() {
	local events=instructions,cycles,ref-cycles,branches,branch-misses,cache-references,cache-misses,L1-dcache-loads,dTLB-load-misses
	local out event n
	out=$(stat $events ls -R /usr/share/perl)
	echo "$out"
	for event in ${events//,/ }; do
		n=$(value "$event" <<<"$out")
		# Linux has no such event for Zen 3, nor 6.1 for Zen 4.
		[ "$event $n $vendor" != "ref-cycles <not AMD" ] || continue
		[ "${n:-0}" -gt 0 ] 2>/dev/null || fail "$event: $n"
	done
	below branch-misses branches
	below cache-misses cache-references
	below dTLB-load-misses L1-dcache-loads
	below L1-dcache-loads instructions
}

# Fewer of this EVENT than of that, counted as a group: counts of events that take turns are estimates.
below() {
	local group
	group=$(stat "{$1,$2}" ls -R /usr/share/perl)
	[ "$(value "$1" <<<"$group")" -lt "$(value "$2" <<<"$group")" ] || fail "$1 not below $2: $group"
}

loops_count_exactly() {
	local once twice
	once=$(stat instructions:u,branches:u ./spin 1000000)
	twice=$(stat instructions:u,branches:u ./spin 2000000)
	[ $(($(value instructions:u <<<"$twice") - $(value instructions:u <<<"$once"))) = 4000000 ] || fail "$once; $twice"
	[ $(($(value branches:u <<<"$twice") - $(value branches:u <<<"$once"))) = 1000000 ] || fail "$once; $twice"
}

groups_count_what_single_events_count() {
	local group single
	group=$(stat '{instructions:u,branches:u}' ./work 3)
	single=$(stat instructions:u ./work 3; stat branches:u ./work 3)
	[ "$group" = "$single" ] || fail "$group; $single"
}

more_events_than_counters_take_turns() {
	local out
	out=$(stat branches,branches,branches,branches,branches,branches,branches,branches,branches,branches,instructions,cycles ./spin 100000000)
	[ "$(wc -l <<<"$out")" = 12 ] || fail "$out"
	awk '$2 + 0 == 0 { none = 1 } $3 < 99 { shared = 1 } END { exit none || !shared }' <<<"$out" || fail "$out"
}

children_are_counted() {
	local alone family
	alone=$(stat instructions:u ./spin 1000000 | value instructions:u)
	family=$(stat instructions:u ./spin 1000000 4 | value instructions:u)
	[ $((family - alone)) -ge 12000000 ] && [ $((family - alone)) -lt 12100000 ] || fail "$alone, $family"
	family=$(stat instructions:u -i ./spin 1000000 4 | value instructions:u)
	# How much libc does before main() depends on its version.
	[ $((family - alone)) -lt 100000 ] && [ $((alone - family)) -lt 100000 ] || fail "not inherited, and yet $family; alone $alone"
}

intervals_are_printed() {
	perf stat -a -I 1000 -x, -o stat.out -e instructions sleep 2.5 || fail "perf stat"
	[ "$(awk -F, '/instructions/ && $2 + 0 > 0' stat.out | wc -l)" -ge 2 ] || fail "$(cat stat.out)"
}

each_cpu_is_counted() {
	perf stat -a -A -x, -o stat.out -e instructions ls -R /usr/share/perl >/dev/null || fail "perf stat"
	[ "$(awk -F, '/instructions/ && $2 + 0 > 0 { print $1 }' stat.out | sort -u | wc -l)" = "$(nproc)" ] || fail "$(cat stat.out)"
}

a_thread_is_counted_while_it_runs() {
	./spin 100000000000 &
	perf stat --per-thread -x, -o stat.out -e instructions:u -p $! sleep 0.5 || fail "perf stat"
	kill $!
	wait $! 2>/dev/null
	grep -q "^spin-" stat.out && awk -F, '/^spin-/ && $2 + 0 < 1000000 { exit 1 }' stat.out || fail "$(cat stat.out)"
}

# r400 is perf's code for fixed counter 3. Where Linux takes the counters from the program and returns them, it writes whole
# cycles and slots: of its last cycle, each such turn may leave as many slots as are less than a cycle.
slots_are_the_width_times_cycles() {
	local width out rest switches
	case $(awk -F: '/^model\t/ { print $2 + 0; exit }' /proc/cpuinfo) in
	106) width=5 ;; # icelake
	143) width=6 ;; # sapphirerapids
	*) return ;;
	esac
	out=$(stat '{r400:u,cycles:u},context-switches' ./work 3)
	rest=$(($(value r400:u <<<"$out") - width * $(value cycles:u <<<"$out")))
	switches=$(value context-switches <<<"$out")
	[ $rest -ge 0 ] && [ $rest -le $(((width - 1) * (switches + 1))) ] || fail "$out"
}

record_finds_the_hot_loop() {
	local out
	perf record -o perf.data ./spin 200000000 >record.out 2>&1 || fail "$(cat record.out)"
	out=$(perf report -i perf.data --stdio 2>/dev/null | grep -v '^#' | grep . | head -5)
	awk '/hot_loop/ && $1 + 0 > 80 { found = 1 } END { exit !found }' <<<"$out" || fail "$out"
}

# Of one event that goes with the thread: perf's default is one for each CPU, and a thread that moves leaves the rest of a period
# behind on each.
samples_come_at_their_period() {
	local samples
	perf record --per-thread -o perf.data -e instructions:u -c 1000000 ./spin 100000000 >record.out 2>&1 || fail "$(cat record.out)"
	samples=$(perf script -i perf.data -F ip 2>/dev/null | wc -l)
	[ "$samples" = 400 ] || fail "$samples samples"
}

top_finds_the_hot_loop() {
	local i
	./spin 10000000000000 & # for hours
	sleep 1000 | perf top --stdio -d 1 >top.out 2>&1 &
	for i in $(seq 500); do # perf reads the symbols of the kernel first
		! grep -q 'spin  *\[.\] hot_loop' top.out || break
		sleep 0.5
	done
	kill %1 %2
	wait 2>/dev/null
	[ "$i" -lt 500 ] || fail "$(tail -5 top.out)"
}

vendor=$(awk '/vendor_id/ { print /AMD/ ? "AMD" : "Intel"; exit }' /proc/cpuinfo)
checks=(counts_make_sense loops_count_exactly record_finds_the_hot_loop)
if [ -n "$all" ]; then
	checks+=(groups_count_what_single_events_count more_events_than_counters_take_turns children_are_counted
		slots_are_the_width_times_cycles intervals_are_printed each_cpu_is_counted a_thread_is_counted_while_it_runs
		top_finds_the_hot_loop samples_come_at_their_period)
fi
for check in "${checks[@]}"; do
	($check) || fail "$check ended early, or its last command failed" # as bash does at the first number that is none
	echo "perf: $check"
done
[ ! -e failures ]
