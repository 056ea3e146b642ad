-- SPDX-License-Identifier: MIT
-- Binary trees that are made, counted and forgotten; argument: depth.
local depth = tonumber(arg[1])

local function make(level)
	return level == 0 and {} or { left = make(level - 1), right = make(level - 1) }
end

local function count(tree)
	return tree.left and 1 + count(tree.left) + count(tree.right) or 1
end

local lasting = make(depth)
for level = 4, depth, 4 do
	local trees, sum = 2 ^ (depth - level + 4), 0
	for _ = 1, trees do
		sum = sum + count(make(level))
	end
	print(trees, level, sum)
end
print(count(lasting))
