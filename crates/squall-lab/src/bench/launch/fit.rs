//! Least squares with few parameters, none of them negative, since they are costs.

/// One measurement: a factor for each parameter of the model, and the measured result.
pub(in crate::bench) type Row<const P: usize> = ([f64; P], f64);

/// Parameters of a model fitted to measurements: a result is the sum of parameters times factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::bench) struct Fit<const P: usize> {
    pub(in crate::bench) parameters: [f64; P],
    /// Root mean square of the relative errors of the fitted model.
    pub(in crate::bench) residual: f64,
}

impl<const P: usize> Fit<P> {
    /// Returns the model's result for these factors.
    pub(in crate::bench) fn at(&self, factors: [f64; P]) -> f64 {
        factors.iter().zip(self.parameters).map(|(factor, parameter)| factor * parameter).sum()
    }
}

/// Returns the parameters with the smallest relative errors. As there are few, every subset of parameters that are not
/// zero is tried.
pub(in crate::bench) fn fit<const P: usize>(rows: &[Row<P>]) -> Fit<P> {
    let none = Fit { parameters: [0.0; P], residual: f64::INFINITY };
    let choices = (1_u32..1 << P).filter_map(|choice| {
        let parameters = solve(rows, choice)?;
        let residual = residual(rows, &parameters);
        parameters.iter().all(|p| *p >= 0.0).then_some(Fit { parameters, residual })
    });
    choices.fold(none, |best, other| if other.residual < best.residual { other } else { best })
}

fn residual<const P: usize>(rows: &[Row<P>], parameters: &[f64; P]) -> f64 {
    let fit = Fit { parameters: *parameters, residual: 0.0 };
    let errors = rows.iter().map(|(factors, result)| fit.at(*factors) / result - 1.0);
    (errors.map(|e| e * e).sum::<f64>() / rows.len().max(1) as f64).sqrt()
}

/// Solves the normal equations for the parameters in the bit set `choice`; the others are zero. None: there is no
/// unique solution.
fn solve<const P: usize>(rows: &[Row<P>], choice: u32) -> Option<[f64; P]> {
    let mut matrix = [[0.0; P]; P];
    let mut right = [0.0; P];
    let chosen = |i: usize| choice & (1 << i) != 0;
    for (factors, result) in rows {
        let scaled = factors.map(|factor| factor / result);
        for i in (0..P).filter(|i| chosen(*i)) {
            right[i] += scaled[i];
            for j in (0..P).filter(|j| chosen(*j)) {
                matrix[i][j] += scaled[i] * scaled[j];
            }
        }
    }
    for i in (0..P).filter(|i| !chosen(*i)) {
        matrix[i][i] = 1.0;
    }
    eliminate(&mut matrix, &mut right)
}

/// Solves a linear system by Gauss-Jordan elimination with the largest pivot. None: the matrix is singular.
fn eliminate<const P: usize>(matrix: &mut [[f64; P]; P], right: &mut [f64; P]) -> Option<[f64; P]> {
    for at in 0..P {
        let pivot = (at..P).max_by(|a, b| matrix[*a][at].abs().total_cmp(&matrix[*b][at].abs()))?;
        matrix.swap(at, pivot);
        right.swap(at, pivot);
        let row = matrix[at];
        if row[at].abs() <= 1e-12 * matrix.iter().flatten().fold(0.0, |most: f64, x| most.max(x.abs())) {
            return None;
        }
        for other in (0..P).filter(|other| *other != at) {
            let factor = matrix[other][at] / row[at];
            for (cell, own) in matrix[other].iter_mut().zip(row) {
                *cell -= factor * own;
            }
            right[other] -= factor * right[at];
        }
    }
    Some(std::array::from_fn(|i| right[i] / matrix[i][i]))
}

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn what_was_made_by_a_model_is_fitted_by_it() {
        let made = |n: f64| ([1.0, n, n.ln()], 0.010 + 0.002 * n + 0.003 * n.ln());
        let found = fit(&[1.0, 2.0, 8.0, 64.0, 256.0].map(made));
        for (found, made) in found.parameters.iter().zip([0.010, 0.002, 0.003]) {
            assert!((found - made).abs() < 1e-9, "{found} {made}");
        }
        assert!(found.residual < 1e-9 && (found.at([1.0, 1.0, 0.0]) - 0.012).abs() < 1e-9);
    }

    #[expect(clippy::float_cmp, reason = "these values are exact")]
    #[test]
    fn no_cost_is_negative() {
        let found = fit(&[([1.0, 1.0], 0.9), ([1.0, 2.0], 2.1), ([1.0, 4.0], 3.9)]);
        assert_eq!(found.parameters[0], 0.0, "the line through the points starts below zero");
        assert!((found.parameters[1] - 1.0).abs() < 0.05 && found.residual > 0.01);
    }

    #[expect(clippy::float_cmp, reason = "these values are exact")]
    #[test]
    fn too_few_points_still_give_something() {
        let found = fit(&[([1.0, 5.0], 10.0)]);
        assert!(found.residual < 1e-9, "{found:?}");
        assert_eq!(fit::<2>(&[]).parameters, [0.0; 2]);
    }
}
