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

# likwid 5.2 takes it for granted that an Ice Lake SP has four fixed counters; KVM offers three. So it enables each general
# counter one too high, and counts with the second if the first is in use.
likwid-perfctr -M 1 -f -C 0 -g INSTR_RETIRED_ANY:FIXC0,BR_INST_RETIRED_ALL_BRANCHES:PMC0,BR_INST_RETIRED_ALL_BRANCHES:PMC1 \
	./spin 10000000 >out 2>&1 || { cat out; exit 1; }
grep '|.*RETIRED' out
awk -F'|' '/INSTR_RETIRED_ANY/ && $4 >= 40000000 { i = 1 } /PMC1/ && $4 >= 10000000 { b = 1 }
	END { exit !(i && b) }' out || { cat out; exit 1; }
