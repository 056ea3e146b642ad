# SPDX-License-Identifier: MIT
# PAPI and likwid find the processor's counters and count with them.
cd /tmp || exit 1

papi_avail -a >out 2>&1 || { cat out; exit 1; }
grep 'Of .* available' out
for event in PAPI_TOT_INS PAPI_TOT_CYC PAPI_BR_INS PAPI_L1_DCM PAPI_BR_MSP; do
	grep -q "^$event" out || { echo "no $event"; exit 1; }
done

papi_command_line PAPI_TOT_INS PAPI_TOT_CYC PAPI_BR_INS >out 2>&1 || { cat out; exit 1; }
grep '^PAPI' out
awk -F: '/^PAPI_/ && $2 > 1000000 { n++ } END { exit n != 3 }' out || { cat out; exit 1; }

likwid-perfctr -M 1 -e >out 2>&1 || { cat out; exit 1; }
grep 'This architecture has' out
grep -q 'BR_INST_RETIRED_ALL' out || { head -40 out; exit 1; }

# spin N: 4 instructions, a branch among them, N times, in at least a cycle of 5 slots each. likwid takes the counters of an Ice Lake for granted, all four fixed ones
# too: where the general ones begin depends on them. It may start them after the program, so only their relations are known.
likwid-perfctr -M 1 -f -C 0 -g INSTR_RETIRED_ANY:FIXC0,TOPDOWN_SLOTS:FIXC3,BR_INST_RETIRED_ALL_BRANCHES:PMC0,BR_INST_RETIRED_ALL_BRANCHES:PMC7 \
	./spin 1000000000 >out 2>&1 || { cat out; exit 1; }
grep '|.*\(RETIRED\|SLOTS\)' out
awk -F'|' '/FIXC0/ { instructions = $4 } /FIXC3/ { slots = $4 } /PMC0/ { first = $4 } /PMC7/ { last = $4 }
	END { exit !(first > 1000000 && first + 0 == last + 0 && slots >= 5 * first &&
		instructions > 3.9 * first && instructions < 4.1 * first) }' out || { cat out; exit 1; }
