//! `KEY=VALUE` settings of accounts, users, associations and QOS: sacctmgr's arguments, the options in a line of its
//! dump, and the fields of REST bodies.

use squall_model::duration::{parse_limit, parse_memory_mb};
use squall_model::policy::{
    Account, AdminLevel, Association, Counts, Limit, Limits, Policy, PreemptMode, Qos, Scope, Tres, User, Whose,
};

use crate::columns::records::{TRES, is_timed, starts};
use crate::limits::{self, LimitKind};

/// Quotes that may enclose a value, as in `format="account,user"`. They are not part of it.
pub const QUOTES: [char; 2] = ['\'', '"'];

/// Reason why a setting is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The record has no such key.
    Key,
    /// The value is malformed. The text is sacctmgr's.
    Value(String),
    /// The value is Slurm's, but Squall can't obey it. The text is sacctmgr's.
    NotDone(String),
}

/// An argument `KEY=VALUE` of sacctmgr: a setting or a condition.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The text before the equals sign, in lower case.
    pub key: String,
    /// Sign before the equals sign: Some(true) for `+=`, Some(false) for `-=`, None for `=`.
    pub sign: Option<bool>,
    /// The text after the equals sign, without quotes.
    pub value: String,
    /// The whole argument as it was typed.
    pub text: String,
}

impl Setting {
    /// Parses an argument; one without `=` is a name.
    pub fn of(word: &str) -> Self {
        let (key, value) = word.split_once('=').unwrap_or(("name", word));
        let (key, sign) = match key.as_bytes().last() {
            Some(b'+') => (&key[..key.len() - 1], Some(true)),
            Some(b'-') => (&key[..key.len() - 1], Some(false)),
            _ => (key, None),
        };
        let value = value.trim_matches(QUOTES).to_owned();
        Self { key: key.to_ascii_lowercase(), sign, value, text: word.to_owned() }
    }

    /// Returns whether the key abbreviates `name` with at least `least` letters.
    pub fn is(&self, name: &str, least: usize) -> bool {
        self.key.len() >= least && starts(name, &self.key)
    }

    /// Splits the value into names.
    pub fn list(&self) -> Vec<String> {
        self.value.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Returns whether the setting adds QOS to a list, or removes them from it, instead of replacing it.
    fn alters_levels(&self) -> bool {
        self.is("qoslevel", 1) && (self.sign.is_some() || (self.value != "-1" && self.value.starts_with(['+', '-'])))
    }

    /// Applies the setting to a list: replaces it, adds names, or removes names; -1 empties it.
    fn change_list(&self, list: &mut Vec<String>) {
        // All these are accepted: `qos+=a`, `qos=+a`, `qos=-a` and `qos=+a,-b`.
        let signed = self.sign.is_some() || self.value.starts_with(['+', '-']);
        if self.value == "-1" || !signed {
            list.clear();
        }
        for word in self.list().iter().filter(|_| self.value != "-1") {
            let name = word.trim_start_matches(['+', '-']);
            let removes = if word.starts_with(['+', '-']) { word.starts_with('-') } else { self.sign == Some(false) };
            list.retain(|known| known != name || !removes);
            if !removes && !list.iter().any(|known| known == name) {
                list.push(name.to_owned());
            }
        }
    }

    /// Checks flags of a QOS and spells them as Slurm does. Flags without effect in Squall are refused.
    fn as_flags(&self) -> Result<Self, Wrong> {
        const KNOWN: [&str; 8] = Qos::FLAGS;
        let named = |word: &str| {
            let bare = word.trim_start_matches(['+', '-']);
            let known = KNOWN.into_iter().find(|flag| flag.eq_ignore_ascii_case(bare)).map(str::to_owned);
            // An unknown flag, which an older version accepted, may still be removed.
            let goes = self.sign == Some(false) || word.starts_with('-');
            let name = known.or_else(|| goes.then(|| bare.to_owned()));
            let name = name.ok_or_else(|| {
                let slurms = Qos::NOT_DONE.iter().find(|(flag, _)| flag.eq_ignore_ascii_case(bare));
                let why = slurms.map_or_else(
                    || format!("{bare} is of no effect here; these are known: {}", KNOWN.join(", ")),
                    |(flag, why)| format!("{flag} is not taken: {why}"),
                );
                Wrong::NotDone(format!(" Bad value for flags: {why}"))
            })?;
            Ok(format!("{}{name}", &word[..word.len() - bare.len()]))
        };
        if self.value == "-1" {
            return Ok(self.clone());
        }
        let words = self.list().iter().map(|word| named(word)).collect::<Result<Vec<_>, Wrong>>()?;
        Ok(Self { value: words.join(","), ..self.clone() })
    }

    /// Returns the error of a malformed value.
    fn bad(&self) -> Wrong {
        Wrong::Value(format!(" Bad value for {}: {}", self.key, self.value))
    }

    fn number(&self) -> Result<u64, Wrong> {
        self.value.parse().map_err(|_| self.bad())
    }

    /// Returns a number of 32 bits, the largest one in place of a larger one. None: -1, which clears the value.
    fn small(&self) -> Result<Option<u32>, Wrong> {
        let number = || Ok(self.number()?.min(u64::from(u32::MAX)) as u32);
        if self.value == "-1" { Ok(None) } else { number().map(Some) }
    }

    fn seconds(&self) -> Result<u64, Wrong> {
        let wrong = |_| Wrong::Value(format!(" Bad time value for {}: {}", self.key, self.value));
        let limit = parse_limit(&self.value).map_err(wrong);
        limit.map(|limit| limit.unwrap_or(u64::from(u32::MAX)))
    }

    /// Sets a limit, or clears it with -1.
    fn change_limit(&self, limits: &mut Limits, limit: Limit) -> Result<(), Wrong> {
        if self.value == "-1" {
            limits.remove(&limit);
            return Ok(());
        }
        let value = match limit.counts() {
            Counts::Time => self.seconds()?,
            Counts::Running | Counts::Submitted => self.number()?,
            Counts::Of(tres) => {
                let memory = || parse_memory_mb(&self.value).map_err(|_| self.bad());
                let value = if tres == Tres::Mem { memory()? } else { self.number()? };
                value.saturating_mul(if is_timed(limit.scope()) { 60 } else { 1 })
            }
        };
        limits.insert(limit, value);
        Ok(())
    }

    /// Sets limits of several resources: `cpu=10,mem=4G,node=-1,gres/gpu=2`.
    fn change_tres(&self, limits: &mut Limits, scope: Scope) -> Result<(), Wrong> {
        for part in self.value.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let tres = match Tres::named(name) {
                Some(tres) if scope != Scope::Node || !matches!(tres, Tres::Node | Tres::Billing) => tres,
                // This resource can't be limited, so there is nothing to clear.
                _ if value == "-1" && is_resource(&name.to_ascii_lowercase()) => continue,
                _ => {
                    let others = if scope == Scope::Node { "" } else { ", node, billing" };
                    let why = limits::not_limited(name).map_or_else(String::new, |why| format!(" ({why})"));
                    return Err(Wrong::NotDone(format!(
                        " Bad value for {}: {name} can't be limited here{why}: cpu, mem{others} and gres/gpu can",
                        self.key,
                    )));
                }
            };
            Self { value: value.to_owned(), ..self.clone() }.change_limit(limits, Limit::of(scope, tres))?;
        }
        Ok(())
    }

    /// Sets the limit that the key names.
    fn change_limits(&self, limits: &mut Limits, whose: Whose) -> Result<(), Wrong> {
        let row = limits::by_key(&self.key, whose).ok_or_else(|| match limits::not_done(&self.key) {
            Some((name, why)) => Wrong::NotDone(format!(" Bad value for {}: {name} is not taken: {why}", self.key)),
            None => Wrong::Key,
        })?;
        match row.what {
            LimitKind::One(limit) => self.change_limit(limits, limit),
            LimitKind::Each(scope) => self.change_tres(limits, scope),
        }
    }

    /// Applies the setting to the record of an account.
    pub fn change_account(&self, account: &mut Account) -> Result<(), Wrong> {
        if self.is("description", 1) {
            account.description.clone_from(&self.value);
        } else if self.is("organization", 1) {
            account.organization.clone_from(&self.value);
        } else {
            return Err(Wrong::Key);
        }
        Ok(())
    }

    /// Applies the setting to the record of a user.
    pub fn change_user(&self, user: &mut User) -> Result<(), Wrong> {
        if self.is("defaultaccount", 8) {
            user.default_account.clone_from(&self.value);
        } else if self.is("adminlevel", 2) {
            let level = admin_level(&self.value);
            user.admin = level.ok_or_else(|| Wrong::Value(format!(" Unknown admin level: {}", self.value)))?;
        } else {
            return Err(Wrong::Key);
        }
        Ok(())
    }

    /// Applies the setting to an association.
    pub fn change_association(&self, own: &mut Association) -> Result<(), Wrong> {
        if self.is("fairshare", 1) || self.is("shares", 1) {
            own.shares = match self.value.as_str() {
                // Slurm's dumps have this number for `parent`.
                "parent" | "2147483647" => None,
                _ => Some(self.small()?.unwrap_or(1)),
            };
        } else if self.is("qoslevel", 1) {
            self.change_list(&mut own.qos);
            // An association whose list is set to nothing inherits one; not so if the last name was removed.
            own.no_qos = (self.alters_levels() && own.qos.is_empty()).then_some(true);
        } else if self.is("defaultqos", 8) {
            own.default_qos = if self.value == "-1" { String::new() } else { self.value.clone() };
        } else if self.is("priority", 3) {
            own.priority = self.small()?;
        } else {
            return self.change_limits(&mut own.limits, Whose::Association);
        }
        Ok(())
    }

    /// Applies the setting to an association of an account. QOS are added to the list that it inherits, and removed from
    /// that, while it has none of its own.
    pub fn change_inherited(&self, own: &mut Association, (policy, account): (&Policy, &str)) -> Result<(), Wrong> {
        if self.alters_levels() && own.qos.is_empty() {
            own.qos = policy.allowed_qos(account, own).into_iter().map(str::to_owned).collect();
        }
        self.change_association(own)
    }

    /// Applies the setting to a QOS.
    pub fn change_qos(&self, qos: &mut Qos) -> Result<(), Wrong> {
        if self.is("description", 1) {
            qos.description.clone_from(&self.value);
        } else if self.is("priority", 3) {
            qos.priority = self.small()?.unwrap_or(0);
        } else if self.key == "preempt" {
            self.change_list(&mut qos.preempt);
        } else if self.is("preemptmode", 8) {
            qos.preempt_mode = match self.value.to_ascii_lowercase().as_str() {
                "-1" | "cluster" => None,
                "off" => Some(PreemptMode::Off),
                "cancel" => Some(PreemptMode::Cancel),
                "requeue" => Some(PreemptMode::Requeue),
                "checkpoint" | "checkpoint,requeue" => Some(PreemptMode::Checkpoint),
                "suspend" => {
                    return Err(Wrong::NotDone(
                        " Bad Preempt Mode given: suspend: only partitions of a higher PriorityTier suspend jobs \
                                (PreemptType = \"preempt/partition_prio\"); use checkpoint, requeue or cancel"
                            .to_owned(),
                    ));
                }
                _ => return Err(Wrong::Value(format!(" Bad Preempt Mode given: {}", self.value))),
            };
        } else if self.is("gracetime", 3) {
            qos.grace_s = if self.value == "-1" { 0 } else { self.number()? };
        } else if self.is("preemptexempttime", 8) {
            qos.exempt_s = if self.value == "-1" { None } else { Some(self.seconds()?) };
        } else if self.is("usagefactor", 6) {
            qos.usage_factor = millionths(&self.value).ok_or_else(|| self.bad())?;
        } else if self.is("usagethreshold", 6) {
            qos.usage_threshold =
                if self.value == "-1" { None } else { Some(millionths(&self.value).ok_or_else(|| self.bad())?) };
        } else if self.is("flags", 1) {
            self.as_flags()?.change_list(&mut qos.flags);
        } else {
            return self.change_limits(&mut qos.limits, Whose::Qos);
        }
        Ok(())
    }
}

/// Returns whether Slurm accounts for a resource, given by name or by number.
fn is_resource(name: &str) -> bool {
    let named = TRES.contains(&name) || ["gres/", "license/", "bb/"].iter().any(|kind| name.starts_with(kind));
    named || name.parse::<u32>().is_ok_and(|id| (1..=TRES.len() as u32).contains(&id) || id > 1000)
}

/// Parses a factor into millionths: `0.5` is 500000; `-1` stands for the default factor 1.
fn millionths(text: &str) -> Option<u64> {
    if text == "-1" {
        return Some(1_000_000);
    }
    let value: f64 = text.parse().ok()?;
    (0.0..=1e6).contains(&value).then(|| (value * 1e6).round() as u64)
}

/// Returns the administrator level that a word names.
pub fn admin_level(word: &str) -> Option<AdminLevel> {
    let word = word.to_ascii_lowercase();
    let level = match word.as_bytes().first()? {
        b'n' | b'-' => AdminLevel::None,
        b'o' => AdminLevel::Operator,
        b'a' => AdminLevel::Administrator,
        _ => return None,
    };
    Some(level)
}
