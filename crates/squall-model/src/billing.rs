//! What a job is billed for the resources that it holds: the weights of a partition (Slurm's `TRESBillingWeights`), and
//! how they are combined (`PriorityFlags`).

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::gres::Count;
use crate::limits::BILLING_WEIGHTS_MAX;

pub mod points;

/// An amount of billing units, which is limited, charged and shown as Slurm's resource `billing`. It is kept in
/// millionths, so that a job that is billed for half a unit is charged for that half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct Billing(#[n(0)] pub u64);

impl Billing {
    const UNIT: u64 = 1_000_000;

    /// Returns a unit for each CPU.
    pub fn of_cpus(cpus: u64) -> Self {
        Self(cpus.saturating_mul(Self::UNIT))
    }
    /// Returns the whole units, as limits count them and lists show them. A part of a unit is left out, as in Slurm.
    pub fn whole(self) -> u64 {
        self.0 / Self::UNIT
    }
    /// Returns the exact amount, in units.
    pub fn exact(self) -> f64 {
        self.0 as f64 / Self::UNIT as f64
    }
}

/// Weights of the resources of a partition's jobs. Without any, each CPU is one billing unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BillingWeights {
    /// The weights as they were written.
    text: String,
    weights: Vec<Weight>,
}

/// The weight of a resource: `micro` millionths of a billing unit for each `per` of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Weight {
    of: Weighed,
    micro: u64,
    per: u64,
}

/// A resource that has a weight.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Weighed {
    Cpu,
    /// Memory, in MiB.
    Memory,
    Node,
    /// Devices of a name, of any type or of one.
    Gres(String, Option<String>),
    License(String),
}

/// What a job holds, or requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held<'a> {
    /// Number of CPUs.
    pub cpus: u64,
    /// Memory, MiB.
    pub memory_mb: u64,
    /// Number of nodes.
    pub nodes: u64,
    /// Generic resources by name and type.
    pub gres: &'a [Count],
    /// Number of each license. None: it needs none.
    pub licenses: Option<&'a BTreeMap<String, u32>>,
}

/// How weighted amounts become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Combine {
    /// All are added.
    #[default]
    Sum,
    /// The largest one of what nodes have (CPUs, memory, nodes, generic resources), and all licenses (`MAX_TRES`).
    Max,
    /// The largest one of CPUs, memory and nodes, all generic resources and all licenses (`MAX_TRES_GRES`).
    MaxAndGres,
}

/// `PriorityFlags`: rules of the calculation of priorities and of what is billed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PriorityFlags {
    /// How the weighted amounts of resources become one.
    pub combine: Combine,
}

impl PriorityFlags {
    /// Returns whether there are no flags.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(crate) fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

impl TryFrom<String> for PriorityFlags {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut flags = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.to_ascii_uppercase().as_str() {
                "MAX_TRES_GRES" => flags.combine = Combine::MaxAndGres,
                // As in Slurm, the other flag counts if both are given.
                "MAX_TRES" if flags.combine == Combine::MaxAndGres => {}
                "MAX_TRES" => flags.combine = Combine::Max,
                // What is done always.
                "FAIR_TREE" => {}
                _ => return Err(format!("PriorityFlags = `{word}`: MAX_TRES or MAX_TRES_GRES is meant")),
            }
        }
        Ok(flags)
    }
}

impl From<PriorityFlags> for String {
    fn from(flags: PriorityFlags) -> Self {
        match flags.combine {
            Combine::Sum => "",
            Combine::Max => "MAX_TRES",
            Combine::MaxAndGres => "MAX_TRES_GRES",
        }
        .to_owned()
    }
}

/// Returns what a job is billed for what it holds.
pub fn billing(held: &Held<'_>, weights: &BillingWeights, combine: Combine) -> Billing {
    let (mut most, mut sum) = (0_u128, 0_u128);
    for Weight { of, micro, per } in &weights.weights {
        let weighted = u128::from(held.amount(of)) * u128::from(*micro) / u128::from(*per);
        let competes = match of {
            Weighed::Cpu | Weighed::Memory | Weighed::Node => combine != Combine::Sum,
            Weighed::Gres(..) => combine == Combine::Max,
            Weighed::License(_) => false,
        };
        if competes {
            most = most.max(weighted);
        } else {
            sum = sum.saturating_add(weighted);
        }
    }
    Billing(u64::try_from(most.saturating_add(sum)).unwrap_or(u64::MAX))
}

impl Held<'_> {
    fn amount(&self, of: &Weighed) -> u64 {
        match of {
            Weighed::Cpu => self.cpus,
            Weighed::Memory => self.memory_mb,
            Weighed::Node => self.nodes,
            Weighed::Gres(name, model) => {
                let is_model = |held: &Count| match (model, &held.model) {
                    (None, _) => true,
                    (Some(model), Some(held)) => held.eq_ignore_ascii_case(model),
                    (Some(_), None) => false,
                };
                let all = self.gres.iter().filter(|held| held.name.eq_ignore_ascii_case(name) && is_model(held));
                all.map(|held| u64::from(held.count)).sum()
            }
            Weighed::License(name) => self.licenses.and_then(|all| all.get(name)).copied().map_or(0, u64::from),
        }
    }
}

impl BillingWeights {
    /// Returns whether there are no weights, so that CPUs are billed.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }
    /// Returns the weights as they were written. Empty: there are none.
    pub fn as_str(&self) -> &str {
        &self.text
    }
    /// Returns whether generic resources have a weight.
    pub fn weigh_gres(&self) -> bool {
        self.weights.iter().any(|weight| matches!(weight.of, Weighed::Gres(..)))
    }
    /// Returns whether licenses have a weight.
    pub fn weigh_licenses(&self) -> bool {
        self.weights.iter().any(|weight| matches!(weight.of, Weighed::License(_)))
    }
}

impl TryFrom<String> for BillingWeights {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut weights: Vec<Weight> = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let weight = weight(word)?;
            if weights.iter().any(|known| known.of == weight.of) {
                return Err(format!("`{word}`: the resource has a weight already"));
            }
            weights.push(weight);
        }
        if weights.len() > BILLING_WEIGHTS_MAX {
            return Err(format!("{} weights: at most {BILLING_WEIGHTS_MAX} are taken", weights.len()));
        }
        Ok(if weights.is_empty() { Self::default() } else { Self { text, weights } })
    }
}

impl From<BillingWeights> for String {
    fn from(weights: BillingWeights) -> Self {
        weights.text
    }
}

/// Reads a weight such as `CPU=1.0`, `Mem=0.25G` or `GRES/gpu:a100=4`.
fn weight(word: &str) -> Result<Weight, String> {
    let meant = "CPU=1.0,Mem=0.25G,Node=1,GRES/gpu=2.0,GRES/gpu:a100=4,License/NAME=1 is the form";
    let (kind, value) = word.split_once('=').ok_or_else(|| format!("`{word}`: {meant}"))?;
    let of = weighed(kind).ok_or_else(|| format!("`{word}`: jobs are not billed for that; {meant}"))?;
    let value = value.trim();
    let (number, unit) = match value.char_indices().next_back() {
        Some((at, unit)) if unit.is_ascii_alphabetic() => (&value[..at], Some(unit.to_ascii_uppercase())),
        _ => (value, None),
    };
    let (times, per) = match (&of, unit) {
        (_, None) | (Weighed::Memory, Some('M')) => (1, 1),
        (Weighed::Memory, Some('K')) => (1 << 10, 1),
        (Weighed::Memory, Some('G')) => (1, 1 << 10),
        (Weighed::Memory, Some('T')) => (1, 1 << 20),
        (Weighed::Memory, Some('P')) => (1, 1 << 30),
        _ => return Err(format!("`{word}`: a unit (K, M, G, T, P) is for memory only")),
    };
    let number = number.parse::<f64>().ok().filter(|number| (0.0..=1e9).contains(number));
    let number = number.ok_or_else(|| format!("`{word}`: a weight is a number from 0 to 1000000000"))?;
    let micro = (number * Billing::UNIT as f64).round() as u64;
    Ok(Weight { of, micro: micro * times, per })
}

/// Reads the name of a resource, as `CPU` or `GRES/gpu:a100`. None: it has no weight.
fn weighed(kind: &str) -> Option<Weighed> {
    let (kind, name) = kind.trim().split_once('/').unwrap_or((kind.trim(), ""));
    let of = match (kind.to_ascii_lowercase().as_str(), name) {
        ("cpu", "") => Weighed::Cpu,
        ("mem", "") => Weighed::Memory,
        ("node", "") => Weighed::Node,
        ("gres", name) if !name.is_empty() && !name.ends_with(':') && !name.starts_with(':') => {
            let (name, model) = name.split_once(':').map_or((name, None), |(name, model)| (name, Some(model)));
            Weighed::Gres(name.to_owned(), model.map(str::to_owned))
        }
        ("license", name) if !name.is_empty() => Weighed::License(name.to_owned()),
        _ => return None,
    };
    Some(of)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{any, proptest};

    use super::{Billing, BillingWeights, Combine, Held, billing};
    use crate::gres::Count;

    fn weights(text: &str) -> BillingWeights {
        BillingWeights::try_from(text.to_owned()).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    fn gpus(model: Option<&str>, count: u32) -> Count {
        Count { name: "gpu".into(), model: model.map(str::to_owned), count }
    }

    /// The example of Slurm's slurm.conf(5): a job with one CPU and 8 GiB.
    #[test]
    fn the_example_of_slurms_manual() {
        let weights = weights("CPU=1.0,Mem=0.25G,GRES/gpu=2.0");
        let held = Held { cpus: 1, memory_mb: 8192, nodes: 1, ..Held::default() };
        let billed = |combine| billing(&held, &weights, combine).0;
        assert_eq!([Combine::Sum, Combine::Max, Combine::MaxAndGres].map(billed), [3_000_000, 2_000_000, 2_000_000]);
    }

    #[test]
    fn the_largest_is_taken_of_what_nodes_have_and_the_rest_is_added() {
        let weights = weights("cpu=1,mem=1G,node=3,gres/gpu=10,gres/gpu:a100=5,license/matlab=2");
        let licenses = BTreeMap::from([("matlab".to_owned(), 4), ("other".to_owned(), 9)]);
        let gres = [gpus(Some("a100"), 2), gpus(None, 1)];
        let held = Held { cpus: 16, memory_mb: 4096, nodes: 2, gres: &gres, licenses: Some(&licenses) };
        let billed = |combine| billing(&held, &weights, combine).whole();
        // A device of a type counts as device of its name, too, as both are resources of their own.
        assert_eq!(billed(Combine::Sum), 16 + 4 + 6 + 30 + 10 + 8);
        assert_eq!(billed(Combine::Max), 30 + 8, "three GPUs are the most");
        assert_eq!(billed(Combine::MaxAndGres), 16 + 30 + 10 + 8);
    }

    #[test]
    fn units_of_memory_and_parts_of_a_unit() {
        let of = |text: &str, memory_mb| {
            let held = Held { cpus: 1, memory_mb, nodes: 1, ..Held::default() };
            billing(&held, &weights(text), Combine::Sum).0
        };
        assert_eq!(of("mem=0.5", 10), 5_000_000, "MiB without a unit");
        assert_eq!(of("mem=2k", 1), 2_048_000_000);
        assert_eq!(of("Mem=0.25G", 1024 * 1024), 256_000_000);
        assert_eq!(of("Mem=8T", 1 << 20), 8_000_000);
        let half = Billing(of("CPU=0.5", 0));
        assert_eq!((half.whole(), half), (0, Billing(500_000)), "it is charged, though no whole unit is shown");
        assert_eq!(of("CPU=0", 4096), 0, "a partition may be free");
    }

    #[test]
    fn they_are_kept_as_they_were_written_and_wrong_ones_are_refused() {
        let text = "CPU=1.0, Mem=0.25G,GRES/gpu=2.0";
        assert_eq!((weights(text).as_str(), weights(" , ").as_str()), (text, ""));
        assert!(weights("").is_empty() && !weights("CPU=0").is_empty(), "a weight of 0 is a weight");
        for wrong in [
            "CPU",
            "CPU=",
            "CPU=x",
            "CPU=-1",
            "CPU=nan",
            "CPU=inf",
            "CPU=1G",
            "Mem=1X",
            "colour=1",
            "billing=1",
            "gres/=1",
            "gres/gpu:=1",
            "license/=1",
            "CPU=1,cpu=2",
            "Mem=G",
            "cpu/x=1",
            "CPU=1\u{e9}",
        ] {
            assert!(BillingWeights::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
        let many: Vec<String> = (0..300).map(|n| format!("gres/g{n}=1")).collect();
        assert!(BillingWeights::try_from(many.join(",")).is_err_and(|why| why.contains("at most")));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            drop(BillingWeights::try_from(text));
        }

        /// Who holds more never pays less, and the maximum is never above the sum.
        #[test]
        fn it_rises_with_what_is_held(cpus in any::<u64>(), memory_mb in any::<u64>(), more in any::<u64>()) {
            let weights = weights("CPU=0.5,Mem=3T,Node=7");
            let of = |cpus, combine| billing(&Held { cpus, memory_mb, nodes: 1, ..Held::default() }, &weights, combine);
            for combine in [Combine::Sum, Combine::Max, Combine::MaxAndGres] {
                assert!(of(cpus, combine) <= of(cpus.saturating_add(more), combine));
                assert!(of(cpus, combine) <= of(cpus, Combine::Sum));
            }
        }
    }
}
