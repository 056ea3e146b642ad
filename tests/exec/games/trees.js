// SPDX-License-Identifier: MIT
// Binary trees that are made, counted and forgotten; argument: depth.
const depth = Number(process.argv[2]);
const make = (level) => level === 0 ? { left: null, right: null } : { left: make(level - 1), right: make(level - 1) };
const count = (tree) => tree.left ? 1 + count(tree.left) + count(tree.right) : 1;

const lasting = make(depth);
for (let level = 4; level <= depth; level += 4) {
	const trees = 1 << (depth - level + 4);
	let sum = 0;
	for (let i = 0; i < trees; i++)
		sum += count(make(level));
	console.log(trees, level, sum);
}
console.log(count(lasting));
