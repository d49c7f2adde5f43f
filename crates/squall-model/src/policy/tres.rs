//! Names and ids of resources.

use super::Tres;

impl Tres {
    /// All resources that can be limited, in the order of their numbers in `Tres`.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::Mem, Self::Node, Self::Gpu, Self::Billing];

    /// Returns the resource's row: Slurm's name and id. Ids of generic resources begin at 1001.
    const fn row(self) -> (&'static str, u32) {
        match self {
            Self::Cpu => ("cpu", 1),
            Self::Mem => ("mem", 2),
            Self::Node => ("node", 4),
            Self::Gpu => ("gres/gpu", 1001),
            Self::Billing => ("billing", 5),
        }
    }

    /// Returns Slurm's name of the resource, as `gres/gpu`.
    pub const fn name(self) -> &'static str {
        self.row().0
    }
    /// Returns Slurm's id of the resource.
    pub const fn id(self) -> u32 {
        self.row().1
    }
    /// Returns the resource with a name, in whatever case, or with an id as text. None: there is no such one.
    pub fn named(text: &str) -> Option<Self> {
        let is = |tres: &Self| tres.name().eq_ignore_ascii_case(text) || text.parse() == Ok(tres.id());
        Self::ALL.into_iter().find(is)
    }
}

#[cfg(test)]
mod tests {
    use super::Tres;

    #[test]
    fn each_has_a_name_and_an_id() {
        for tres in Tres::ALL {
            let id = tres.id().to_string();
            assert_eq!([Tres::named(tres.name()), Tres::named(&id)], [Some(tres), Some(tres)]);
        }
        assert_eq!((Tres::named("GRES/gpu"), Tres::named("energy"), Tres::named("3")), (Some(Tres::Gpu), None, None));
    }
}
