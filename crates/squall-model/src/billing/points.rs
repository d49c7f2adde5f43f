//! Points that a job's priority gets for the resources that the job requests (Slurm's `PriorityWeightTRES`).

use serde::{Deserialize, Serialize};

use super::{Billing, Held, Weighed, weighed};
use crate::limits::BILLING_WEIGHTS_MAX;

/// Points of each resource: those of a job that requests all that its partition has of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TresPoints {
    /// The points as they were written.
    text: String,
    points: Vec<(Scored, u32)>,
}

/// A resource for which a job gets points.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scored {
    /// What the job is billed.
    Billing,
    /// A resource that has weights, too.
    Of(Weighed),
}

/// What a job requests, or what a partition has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Amounts<'a> {
    /// CPUs, memory, nodes and generic resources.
    pub held: Held<'a>,
    /// What is billed for it.
    pub billing: Billing,
}

impl Amounts<'_> {
    fn of(&self, scored: &Scored) -> u64 {
        match scored {
            Scored::Billing => self.billing.0,
            Scored::Of(of) => self.held.amount(of),
        }
    }
}

impl TresPoints {
    /// Returns whether no resource gives points.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
    /// Returns the points as they were written. Empty: there are none.
    pub fn as_str(&self) -> &str {
        &self.text
    }
    /// Returns the points of a job for each resource that it requests, by Slurm's names: the part that it requests of
    /// what its partition has, times the resource's points. A partition without a resource gives none for it.
    pub fn of<'a>(
        &'a self,
        asked: &'a Amounts<'_>,
        whole: &'a Amounts<'_>,
    ) -> impl Iterator<Item = (String, f64)> + 'a {
        self.points.iter().filter_map(|(scored, points)| {
            let (part, all) = (asked.of(scored), whole.of(scored));
            (all > 0).then(|| (scored.name(), (part as f64 / all as f64).min(1.0) * f64::from(*points)))
        })
    }
}

impl Scored {
    fn name(&self) -> String {
        match self {
            Self::Billing => "billing".to_owned(),
            Self::Of(Weighed::Cpu) => "cpu".to_owned(),
            Self::Of(Weighed::Memory) => "mem".to_owned(),
            Self::Of(Weighed::Node) => "node".to_owned(),
            Self::Of(Weighed::Gres(name, None)) => format!("gres/{name}"),
            Self::Of(Weighed::Gres(name, Some(model))) => format!("gres/{name}:{model}"),
            Self::Of(Weighed::License(name)) => format!("license/{name}"),
        }
    }
}

impl TryFrom<String> for TresPoints {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let meant = "CPU=1000,Mem=2000,GRES/gpu=3000,billing=100 is the form";
        let mut points: Vec<(Scored, u32)> = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (kind, number) = word.split_once('=').ok_or_else(|| format!("`{word}`: {meant}"))?;
            let scored = if kind.trim().eq_ignore_ascii_case("billing") {
                Some(Scored::Billing)
            } else {
                // The partition's licenses are those of the whole cluster, which no partition has.
                weighed(kind).filter(|of| !matches!(of, Weighed::License(_))).map(Scored::Of)
            };
            let scored = scored.ok_or_else(|| format!("`{word}`: no points are given for that; {meant}"))?;
            let number = number.trim().parse::<f64>().ok().filter(|points| (0.0..=1e9).contains(points));
            let number = number.ok_or_else(|| format!("`{word}`: points are a number from 0 to 1000000000"))?;
            if points.iter().any(|(known, _)| *known == scored) {
                return Err(format!("`{word}`: the resource has points already"));
            }
            points.push((scored, number.round() as u32));
        }
        if points.len() > BILLING_WEIGHTS_MAX {
            return Err(format!("{} resources: at most {BILLING_WEIGHTS_MAX} are taken", points.len()));
        }
        Ok(if points.is_empty() { Self::default() } else { Self { text, points } })
    }
}

impl From<TresPoints> for String {
    fn from(points: TresPoints) -> Self {
        points.text
    }
}

#[cfg(test)]
mod tests {
    use super::{Amounts, Billing, Held, TresPoints};
    use crate::gres::Count;

    fn read(text: &str) -> Result<TresPoints, String> {
        TresPoints::try_from(text.to_owned())
    }

    #[test]
    fn a_job_gets_points_for_its_part_of_the_partition() {
        let points = read("CPU=1000,Mem=2000,GRES/gpu=3000,billing=100").expect("this is the form");
        let gpus = |count| [Count { name: "gpu".into(), model: None, count }];
        let (few, all) = (gpus(2), gpus(8));
        let asked = Held { cpus: 16, memory_mb: 1000, nodes: 1, gres: &few, licenses: None };
        let has = Held { cpus: 64, memory_mb: 4000, nodes: 4, gres: &all, licenses: None };
        let asked = Amounts { held: asked, billing: Billing(5_000_000) };
        let whole = Amounts { held: has, billing: Billing(50_000_000) };
        let got: Vec<(String, f64)> = points.of(&asked, &whole).collect();
        let named = |name: &str, points| (name.to_owned(), points);
        assert_eq!(got, [named("cpu", 250.0), named("mem", 500.0), named("gres/gpu", 750.0), named("billing", 10.0)]);
        assert_eq!(points.of(&asked, &Amounts::default()).count(), 0, "a partition without nodes gives none");
    }

    #[test]
    fn what_gives_no_points_is_refused() {
        assert!(read("").is_ok_and(|points| points.is_empty()));
        for (text, why) in [
            ("CPU", "is the form"),
            ("energy=1", "no points are given for that"),
            ("license/a=1", "no points are given for that"),
            ("cpu=1,CPU=2", "has points already"),
            ("cpu=-1", "a number from 0"),
        ] {
            assert!(read(text).is_err_and(|problem| problem.contains(why)), "{text}");
        }
    }
}
