-- SPDX-License-Identifier: MIT
-- Sun and four giant planets, symplectic Euler; argument: steps.
local YEAR, SOLAR = 365.24, 4 * math.pi * math.pi
local bodies = {
	{ 0, 0, 0, 0, 0, 0, 1 },
	{ 4.84143144246472082, -1.16032004402742839, -0.103622044471123109, 0.00166007664274403694, 0.00769901118419740425, -0.0000690460016972063023, 0.000954791938424326609 },
	{ 8.34336671824457987, 4.12479856412430479, -0.403523417114321381, -0.00276742510726411044, 0.00499852801234917238, 0.0000230417297573763929, 0.000285885980666130812 },
	{ 12.8943695621391310, -15.1111514016986312, -0.223307578892655734, 0.00296460137564761618, 0.00237847173959480950, -0.0000296589568540237556, 0.0000436624404335156298 },
	{ 15.3796971148509165, -25.9193146099879641, 0.179258772950371181, 0.00268067772490389322, 0.00162824170038242295, -0.0000951592254519715870, 0.0000515138902046611451 },
}
for _, b in ipairs(bodies) do
	b.x, b.y, b.z, b.vx, b.vy, b.vz, b.mass = b[1], b[2], b[3], b[4] * YEAR, b[5] * YEAR, b[6] * YEAR, b[7] * SOLAR
end

local function advance(dt)
	for i, a in ipairs(bodies) do
		for j = i + 1, #bodies do
			local b = bodies[j]
			local dx, dy, dz = a.x - b.x, a.y - b.y, a.z - b.z
			local square = dx * dx + dy * dy + dz * dz
			local pull = dt / (square * math.sqrt(square))
			a.vx, a.vy, a.vz = a.vx - dx * b.mass * pull, a.vy - dy * b.mass * pull, a.vz - dz * b.mass * pull
			b.vx, b.vy, b.vz = b.vx + dx * a.mass * pull, b.vy + dy * a.mass * pull, b.vz + dz * a.mass * pull
		end
	end
	for _, b in ipairs(bodies) do
		b.x, b.y, b.z = b.x + dt * b.vx, b.y + dt * b.vy, b.z + dt * b.vz
	end
end

local function energy()
	local sum = 0
	for i, a in ipairs(bodies) do
		sum = sum + 0.5 * a.mass * (a.vx * a.vx + a.vy * a.vy + a.vz * a.vz)
		for j = i + 1, #bodies do
			local b = bodies[j]
			sum = sum - a.mass * b.mass / math.sqrt((a.x - b.x) ^ 2 + (a.y - b.y) ^ 2 + (a.z - b.z) ^ 2)
		end
	end
	return string.format("%.17g", sum)
end

for _, axis in ipairs { "vx", "vy", "vz" } do
	for i = 2, #bodies do
		bodies[1][axis] = bodies[1][axis] - bodies[i][axis] * bodies[i].mass / SOLAR
	end
end
print(energy())
for _ = 1, tonumber(arg[1]) do
	advance(0.01)
end
print(energy())
