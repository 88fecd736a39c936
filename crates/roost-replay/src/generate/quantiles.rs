//! Drawing from a distribution that is known by a few of its quantiles.

use fastrand::Rng;

/// Draws a value. `quantiles` are (share, value) in ascending order from share 0 to share 1, values above 0; between two
/// of them the logarithm is linear.
pub(super) fn draw(rng: &mut Rng, quantiles: &[(f64, f64)]) -> f64 {
    let share = rng.f64();
    for pair in quantiles.windows(2) {
        let [(from, low), (to, high)] = pair else { continue };
        if share < *to {
            return low * (high / low).powf((share - from) / (to - from));
        }
    }
    quantiles.last().map_or(0.0, |last| last.1)
}
