// SPDX-License-Identifier: MIT
// All permutations of n numbers: how many times the first of them can reverse a beginning, and a checksum.
const n = Number(process.argv[2]);
const order = Int32Array.from({ length: n }, (_, i) => i), turns = new Int32Array(n), work = new Int32Array(n);
let most = 0, sum = 0, sign = 1;

function flips() {
	let count = 0;
	work.set(order);
	for (let first = work[0]; first !== 0; first = work[0], count++)
		work.subarray(0, first + 1).reverse();
	return count;
}

for (let place = 0; place < n;) {
	if (place === 0) {
		const count = flips();
		most = Math.max(most, count);
		sum += sign * count;
		sign = -sign;
		place = 1;
	}
	// The next permutation: of the first place + 1 numbers, the first becomes the last.
	const first = order[0];
	order.copyWithin(0, 1, place + 1);
	order[place] = first;
	if (++turns[place] <= place)
		place = 0;
	else
		turns[place++] = 0;
}
console.log(sum, most);
