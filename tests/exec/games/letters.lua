-- SPDX-License-Identifier: MIT
-- Words of random letters, counted in a table, and patterns in them; argument: letters.
local size, seed, letters = tonumber(arg[1]), 42, {}
for i = 1, size do
	seed = (seed * 3877 + 29573) % 139968
	local letter = math.floor(seed / 139968 * 4) + 1
	letters[i] = ("acgt"):sub(letter, letter)
end
local text = table.concat(letters)
for _, length in ipairs { 1, 2, 6, 12 } do
	local found, words = {}, {}
	for i = 1, size - length + 1 do
		local word = text:sub(i, i + length - 1)
		if not found[word] then
			words[#words + 1] = word
		end
		found[word] = (found[word] or 0) + 1
	end
	table.sort(words, function(a, b)
		return found[a] > found[b] or found[a] == found[b] and a < b
	end)
	print(length, #words, words[1], found[words[1]], words[2], found[words[2]])
end
for _, pattern in ipairs { "agg?t+a", "acgt[ac]+", "[cgt]gggtaaa" } do
	local changed, count = text:gsub(pattern, "-")
	print(pattern, count, #changed)
end
