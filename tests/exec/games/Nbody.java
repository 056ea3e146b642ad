// SPDX-License-Identifier: MIT
/** Sun and four giant planets, symplectic Euler; argument: steps. */
public class Nbody {
	private static final double YEAR = 365.24, SOLAR = 4 * Math.PI * Math.PI;
	private static final double[][] ORBITS = {
		{ 0, 0, 0, 0, 0, 0, 1 },
		{ 4.84143144246472082, -1.16032004402742839, -0.103622044471123109, 0.00166007664274403694, 0.00769901118419740425, -0.0000690460016972063023, 0.000954791938424326609 },
		{ 8.34336671824457987, 4.12479856412430479, -0.403523417114321381, -0.00276742510726411044, 0.00499852801234917238, 0.0000230417297573763929, 0.000285885980666130812 },
		{ 12.8943695621391310, -15.1111514016986312, -0.223307578892655734, 0.00296460137564761618, 0.00237847173959480950, -0.0000296589568540237556, 0.0000436624404335156298 },
		{ 15.3796971148509165, -25.9193146099879641, 0.179258772950371181, 0.00268067772490389322, 0.00162824170038242295, -0.0000951592254519715870, 0.0000515138902046611451 },
	};
	private final double[] place = new double[3], speed = new double[3];
	private final double mass;

	private Nbody(double[] orbit) {
		for (int axis = 0; axis < 3; axis++) {
			place[axis] = orbit[axis];
			speed[axis] = orbit[3 + axis] * YEAR;
		}
		mass = orbit[6] * SOLAR;
	}

	private static void advance(Nbody[] bodies, double dt) {
		for (int i = 0; i < bodies.length; i++)
			for (int j = i + 1; j < bodies.length; j++) {
				Nbody a = bodies[i], b = bodies[j];
				double square = 0;
				for (int axis = 0; axis < 3; axis++)
					square += (a.place[axis] - b.place[axis]) * (a.place[axis] - b.place[axis]);
				double pull = dt / (square * Math.sqrt(square));
				for (int axis = 0; axis < 3; axis++) {
					double distance = a.place[axis] - b.place[axis];
					a.speed[axis] -= distance * b.mass * pull;
					b.speed[axis] += distance * a.mass * pull;
				}
			}
		for (Nbody body : bodies)
			for (int axis = 0; axis < 3; axis++)
				body.place[axis] += dt * body.speed[axis];
	}

	private static double energy(Nbody[] bodies) {
		double sum = 0;
		for (int i = 0; i < bodies.length; i++) {
			Nbody a = bodies[i];
			for (double part : a.speed)
				sum += 0.5 * a.mass * part * part;
			for (int j = i + 1; j < bodies.length; j++) {
				double square = 0;
				for (int axis = 0; axis < 3; axis++)
					square += Math.pow(a.place[axis] - bodies[j].place[axis], 2);
				sum -= a.mass * bodies[j].mass / Math.sqrt(square);
			}
		}
		return sum;
	}

	public static void main(String[] arguments) {
		Nbody[] bodies = java.util.Arrays.stream(ORBITS).map(Nbody::new).toArray(Nbody[]::new);
		for (int axis = 0; axis < 3; axis++)
			for (int i = 1; i < bodies.length; i++)
				bodies[0].speed[axis] -= bodies[i].speed[axis] * bodies[i].mass / SOLAR;
		System.out.println(energy(bodies));
		for (int step = Integer.parseInt(arguments[0]); step > 0; step--)
			advance(bodies, 0.01);
		System.out.println(energy(bodies));
	}
}
