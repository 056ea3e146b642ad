-- SPDX-License-Identifier: MIT
-- All permutations of n numbers: how many times the first of them can reverse a beginning, and a checksum.
local n = tonumber(arg[1])
local order, turns, work = {}, {}, {}
for i = 0, n - 1 do
	order[i], turns[i] = i, 0
end

local function flips()
	local count = 0
	for i = 0, n - 1 do
		work[i] = order[i]
	end
	while work[0] ~= 0 do
		local low, high = 0, work[0]
		while low < high do
			work[low], work[high] = work[high], work[low]
			low, high = low + 1, high - 1
		end
		count = count + 1
	end
	return count
end

local most, sum, sign, place = 0, 0, 1, 0
while place < n do
	if place == 0 then
		local count = flips()
		most, sum, sign, place = math.max(most, count), sum + sign * count, -sign, 1
	end
	-- The next permutation: of the first place + 1 numbers, the first becomes the last.
	local first = order[0]
	for i = 0, place - 1 do
		order[i] = order[i + 1]
	end
	order[place] = first
	turns[place] = turns[place] + 1
	if turns[place] <= place then
		place = 0
	else
		turns[place] = 0
		place = place + 1
	end
end
print(sum, most)
