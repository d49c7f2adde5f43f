//! Other names of sacctmgr's fields, and the fields that an entity does not have: Slurm takes every field for every
//! entity, and leaves those empty.

use super::records::{Entity, Row};
use crate::format::sheet::{Column, Sheet};
use crate::limits;

type C = Column<Row>;

/// Names of fields in Slurm, with the name in our tables.
const ALIASES: &[(&str, &str)] = &[
    ("Associations", "Assocs"),
    ("Clusters", "Cluster"),
    ("Eligible", "TimeEligible"),
    ("End", "TimeEnd"),
    ("GrpMemory", "GrpMem"),
    ("MaxCPUMinsPerJob", "MaxCPUMins"),
    ("MaxCPUsPerJob", "MaxCPUs"),
    ("MaxCPUsPerUser", "MaxCPUsPU"),
    ("MaxCPURunMinsPerUser", "MaxCPURunMinsPU"),
    ("MaxJobsAccruePerAccount", "MaxJobsAccruePA"),
    ("MaxJobsAccruePerAcct", "MaxJobsAccruePA"),
    ("MaxJobsAccruePerUser", "MaxJobsAccruePU"),
    ("MaxJobsPerAccount", "MaxJobsPA"),
    ("MaxJobsPerAcct", "MaxJobsPA"),
    ("MaxJobsPerUser", "MaxJobsPU"),
    ("MaxNodesPerJob", "MaxNodes"),
    ("MaxNodesPerUser", "MaxNodesPU"),
    ("MaxSubmitJobsPA", "MaxSubmitPA"),
    ("MaxSubmitJobsPerAccount", "MaxSubmitPA"),
    ("MaxSubmitJobsPerAcct", "MaxSubmitPA"),
    ("MaxSubmitJobsPerUser", "MaxSubmitPU"),
    ("MaxSubmitJobsPU", "MaxSubmitPU"),
    ("MaxTRESMinsPerJob", "MaxTRESMins"),
    ("MaxTRESMinsPJ", "MaxTRESMins"),
    ("MaxTRESPerAccount", "MaxTRESPA"),
    ("MaxTRESPerAcct", "MaxTRESPA"),
    ("MaxTRESPerJob", "MaxTRES"),
    ("MaxTRESPJ", "MaxTRES"),
    ("MaxTRESPN", "MaxTRESPerNode"),
    ("MaxTRESPerUser", "MaxTRESPU"),
    ("MaxTRESRunMinsPerAccount", "MaxTRESRunMinsPA"),
    ("MaxTRESRunMinsPerAcct", "MaxTRESRunMinsPA"),
    ("MaxTRESRunMinsPerUser", "MaxTRESRunMinsPU"),
    ("MinCPUsPerJob", "MinCPUs"),
    ("MinPrioThreshold", "MinPrioThres"),
    ("MinTRESPerJob", "MinTRES"),
    ("NodeNames", "NodeName"),
    ("QOSRAWLevel", "QOS_RAW"),
    ("Start", "TimeStart"),
    ("Submit", "TimeSubmit"),
    ("TimeStamp", "Time"),
    ("WCKeys", "WCKey"),
];

const fn empty(name: &'static str, width: i32) -> C {
    C::titled(name, name, width, |_| String::new())
}

/// Fields that an entity without them shows empty, as it does limits, with Slurm's titles and widths.
static EMPTY: &[C] = &[
    empty("Account", 10),
    C::titled("Acct", "Account", 10, |_| String::new()),
    empty("ActionRaw", 10),
    empty("Action", 20),
    empty("Actor", 10),
    C::titled("AdminLevel", "Admin", 9, |_| String::new()),
    C::titled("Allocated", "% Allocated", 11, |_| String::new()),
    empty("Allowed", 10),
    empty("Assocs", 20),
    empty("Classification", 14),
    C::titled("ClusterNodes", "Cluster Nodes", 20, |_| String::new()),
    empty("Cluster", 10),
    C::titled("Coordinators", "Coord Accounts", 20, |_| String::new()),
    empty("Comment", 20),
    empty("ControlHost", 15),
    empty("ControlPort", 12),
    empty("Count", 6),
    C::titled("CountAllowed", "# Allowed", 10, |_| String::new()),
    C::titled("CountUsed", "# Used", 10, |_| String::new()),
    C::titled("CPUCount", "CPU Cnt", 7, |_| String::new()),
    C::titled("DefaultAccount", "Def Acct", 10, |_| String::new()),
    C::titled("DefaultQOS", "Def QOS", 9, |_| String::new()),
    C::titled("DefaultWCKey", "Def WCKey", 10, |_| String::new()),
    C::titled("Description", "Descr", 20, |_| String::new()),
    empty("Duration", 13),
    empty("Event", 7),
    empty("EventRaw", 8),
    empty("Extra", 20),
    empty("Fairshare", 9),
    empty("Features", 20),
    empty("Federation", 10),
    empty("FedState", 12),
    empty("FedStateRaw", 11),
    empty("Flags", 20),
    empty("GraceTime", 10),
    empty("GrpJobsAccrue", 13),
    empty("ID", 6),
    empty("Info", 20),
    empty("InstanceId", 20),
    empty("InstanceType", 20),
    empty("LastConsumed", 12),
    empty("LimitFactor", 11),
    empty("Lineage", -20),
    empty("MaxCPURunMinsPU", 15),
    empty("MaxJobsAccrue", 13),
    empty("MaxJobsAccruePA", 15),
    empty("MaxJobsAccruePU", 15),
    empty("MaxTRESRunMinsPA", 16),
    empty("MaxTRESRunMinsPU", 16),
    empty("MinPrioThres", 12),
    empty("Name", 10),
    empty("NodeCount", 9),
    empty("NodeInx", 9),
    empty("NodeName", -15),
    C::titled("Organization", "Org", 20, |_| String::new()),
    empty("ParentID", 8),
    C::titled("ParentName", "Par Name", 10, |_| String::new()),
    empty("Partition", 10),
    empty("Preempt", 10),
    empty("PreemptExemptTime", 19),
    empty("PreemptMode", 11),
    empty("Priority", 10),
    empty("Problem", 40),
    C::titled("QOSLevel", "QOS", 20, |_| String::new()),
    empty("QOS_RAW", 10),
    empty("Reason", 30),
    empty("RPC", 5),
    empty("Server", 10),
    empty("ServerType", 10),
    empty("Share", 9),
    empty("State", 6),
    empty("StateRaw", 8),
    empty("Time", 19),
    empty("TimeEligible", 19),
    empty("TimeEnd", 19),
    empty("TimeStart", 19),
    empty("TimeSubmit", 19),
    empty("TRES", 20),
    empty("Type", 8),
    empty("UnusedWall", 10),
    C::titled("UsageFactor", "UsageFactor", 11, |_| String::new()),
    C::titled("UsageThreshold", "UsageThres", 10, |_| String::new()),
    empty("User", 10),
    empty("WCKey", 10),
    empty("Where", 20),
];

impl Entity {
    /// Returns the sheet for `format=`, such as `Name,MaxTRESPerJob%30`. Error: the name that no entity of Slurm has.
    pub fn sheet(&self, format: &str) -> Result<Sheet<Row>, String> {
        let (mut sheet, columns) = (Sheet::empty(), self.columns());
        let limits = limits::ROWS.iter().flat_map(|row| row.columns);
        let others: Vec<C> = limits.chain(EMPTY).copied().collect();
        for item in format.split(',') {
            let (name, width) = item.split_once('%').map_or((item, ""), |(name, _)| (name, &item[name.len()..]));
            let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name.trim()));
            let known = alias.map_or_else(|| item.to_owned(), |(_, field)| format!("{field}{width}"));
            let parsed = Sheet::parse(&known, &columns).or_else(|_| Sheet::parse(&known, &others));
            sheet.append(parsed.map_err(|_| name.trim().to_owned())?);
        }
        Ok(sheet)
    }
}

#[cfg(test)]
mod tests {
    use super::ALIASES;
    use crate::columns::records::{Row, find};
    use crate::format::sheet::Style;

    #[test]
    fn every_field_is_taken_for_every_entity() {
        let style = Style::Parsable { delimiter: "|".into(), ending: false };
        for entity in ["account", "association", "cluster", "event", "qos", "tres", "transaction", "user"] {
            let entity = find(entity).unwrap();
            for (alias, field) in ALIASES {
                let line = |name: &str| entity.sheet(name).unwrap().lines(true, &style, &[Row::default()]);
                assert_eq!(line(alias), line(field), "{} {alias}", entity.name);
            }
            assert_eq!(entity.sheet("name,bogus%3").err().as_deref(), Some("bogus"));
        }
        let qos = find("qos").unwrap();
        let head = qos.sheet("Name%4,MaxTRESPerJob%20,Org,QOSRAWLevel,maxsubmitjobsperacct").unwrap();
        assert_eq!(head.lines(true, &style, &[]), "Name|MaxTRES|Org|QOS_RAW|MaxSubmitPA\n");
        let table = head.lines(true, &Style::Table, &[]);
        assert!(table.contains("---- -------------------- -------------------- "), "{table}");
    }
}
