// SPDX-License-Identifier: MIT
// Sun and four giant planets, symplectic Euler; argument: steps.
const YEAR = 365.24, SOLAR = 4 * Math.PI * Math.PI;
const bodies = [
	[0, 0, 0, 0, 0, 0, 1],
	[4.84143144246472082, -1.16032004402742839, -0.103622044471123109, 0.00166007664274403694, 0.00769901118419740425, -0.0000690460016972063023, 0.000954791938424326609],
	[8.34336671824457987, 4.12479856412430479, -0.403523417114321381, -0.00276742510726411044, 0.00499852801234917238, 0.0000230417297573763929, 0.000285885980666130812],
	[12.8943695621391310, -15.1111514016986312, -0.223307578892655734, 0.00296460137564761618, 0.00237847173959480950, -0.0000296589568540237556, 0.0000436624404335156298],
	[15.3796971148509165, -25.9193146099879641, 0.179258772950371181, 0.00268067772490389322, 0.00162824170038242295, -0.0000951592254519715870, 0.0000515138902046611451],
].map(([x, y, z, vx, vy, vz, mass]) => ({ x, y, z, vx: vx * YEAR, vy: vy * YEAR, vz: vz * YEAR, mass: mass * SOLAR }));

function still(axis) {
	bodies[0][axis] = -bodies.reduce((sum, body) => sum + body[axis] * body.mass, 0) / SOLAR;
}

function advance(dt) {
	for (let i = 0; i < bodies.length; i++) {
		const a = bodies[i];
		for (let j = i + 1; j < bodies.length; j++) {
			const b = bodies[j], dx = a.x - b.x, dy = a.y - b.y, dz = a.z - b.z;
			const square = dx * dx + dy * dy + dz * dz, pull = dt / (square * Math.sqrt(square));
			a.vx -= dx * b.mass * pull; a.vy -= dy * b.mass * pull; a.vz -= dz * b.mass * pull;
			b.vx += dx * a.mass * pull; b.vy += dy * a.mass * pull; b.vz += dz * a.mass * pull;
		}
	}
	for (const body of bodies) {
		body.x += dt * body.vx; body.y += dt * body.vy; body.z += dt * body.vz;
	}
}

function energy() {
	let sum = 0;
	bodies.forEach((a, i) => {
		sum += 0.5 * a.mass * (a.vx * a.vx + a.vy * a.vy + a.vz * a.vz);
		for (const b of bodies.slice(i + 1))
			sum -= a.mass * b.mass / Math.hypot(a.x - b.x, a.y - b.y, a.z - b.z);
	});
	return sum;
}

["vx", "vy", "vz"].forEach(still);
console.log(energy());
for (let step = 0; step < Number(process.argv[2]); step++)
	advance(0.01);
console.log(energy());
