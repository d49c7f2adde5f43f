//! Values of fields: read from a job, and from what a filter sets.

use squall_model::gres;
use squall_model::job::gpus::GpuCount;
use squall_model::job::{Dependency, Need};
use squall_model::limits::UNLIMITED_S;
use squall_model::resource::Memory;

use crate::constants::{INFINITE, MEM_PER_CPU, NO_VAL, NO_VAL16, NO_VAL64};
use crate::desc::Value;

/// Result of setting a field. The error is for the log.
pub(crate) type Set = Result<(), String>;

/// Bits of Slurm's numbers of `--mail-type`.
const MAIL: [(&str, i64); 11] = [
    ("BEGIN", 0x1),
    ("END", 0x2),
    ("FAIL", 0x4),
    ("REQUEUE", 0x8),
    ("TIME_LIMIT", 0x10),
    ("TIME_LIMIT_90", 0x20),
    ("TIME_LIMIT_80", 0x40),
    ("TIME_LIMIT_50", 0x80),
    ("STAGE_OUT", 0x100),
    ("ARRAY_TASKS", 0x200),
    ("INVALID_DEPEND", 0x400),
];
const MAIL_ALL: i64 = 0x1 | 0x2 | 0x4 | 0x8 | 0x100 | 0x400;

/// Returns a text as a value.
pub(crate) fn text(text: &str) -> Value {
    if text.is_empty() { Value::Nil } else { Value::Text(text.as_bytes().to_vec()) }
}

/// Returns a text that may lack as a value.
pub(crate) fn some_text(given: Option<&String>) -> Value {
    given.map_or(Value::Nil, |given| text(given))
}

/// Returns a number as a value, or what stands for none.
pub(crate) fn number(given: Option<impl Into<i64>>, none: i64) -> Value {
    Value::Int(given.map_or(none, Into::into))
}

/// Returns a number of which 0 means none.
pub(crate) fn positive(given: u32) -> Value {
    number(Some(given).filter(|given| *given > 0), NO_VAL16)
}

/// Returns whether something holds as Slurm's number of 16 bits.
pub(crate) fn flag(given: Option<bool>) -> Value {
    number(given, NO_VAL16)
}

/// Returns a text that a filter sets. None: an empty one, or `nil`.
pub(crate) fn to_text(value: &Value) -> Result<Option<String>, String> {
    match value {
        Value::Nil => Ok(None),
        Value::Int(number) => Ok(Some(number.to_string())),
        Value::Large(number) => Ok(Some(number.to_string())),
        Value::List(_) => Err("a text is needed".to_owned()),
        Value::Text(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|_| "the text is no UTF-8".to_owned())?;
            if text.contains('\0') {
                return Err("the text has a NUL".to_owned());
            }
            Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
        }
    }
}

/// Returns a number that a filter sets. None: one that stands for none.
pub(crate) fn to_number(value: &Value) -> Result<Option<i64>, String> {
    let number = match value {
        Value::Nil => return Ok(None),
        Value::Int(number) => *number,
        Value::Large(number) if *number >= NO_VAL64 => return Ok(None),
        Value::Large(_) | Value::List(_) => return Err("a whole number is needed".to_owned()),
        Value::Text(bytes) => {
            let text = std::str::from_utf8(bytes).ok().map(str::trim);
            text.and_then(|text| text.parse().ok()).ok_or("a number is needed")?
        }
    };
    Ok(Some(number).filter(|number| *number != NO_VAL))
}

/// Returns a number of at most 32 bits that a filter sets.
pub(crate) fn to_u32(value: &Value) -> Result<Option<u32>, String> {
    let number = to_number(value)?;
    number.map(|number| u32::try_from(number).map_err(|_| format!("{number} is no number of this kind"))).transpose()
}

/// Returns a number of 16 bits that a filter sets, for which another number stands for none.
pub(crate) fn to_u16(value: &Value) -> Result<Option<u32>, String> {
    Ok(to_u32(value)?.filter(|number| i64::from(*number) != NO_VAL16))
}

/// Returns whether something holds as a filter sets it: 0 or 1.
pub(crate) fn to_flag(value: &Value) -> Result<Option<bool>, String> {
    Ok(to_u16(value)?.map(|number| number != 0))
}

/// Returns seconds as Slurm's minutes.
pub(crate) fn minutes(seconds: Option<u64>) -> Value {
    match seconds {
        None => Value::Int(NO_VAL),
        Some(UNLIMITED_S) => Value::Int(INFINITE),
        Some(seconds) => Value::Int(i64::try_from(seconds.div_ceil(60)).unwrap_or(INFINITE)),
    }
}

/// Returns the seconds of Slurm's minutes that a filter sets.
pub(crate) fn to_seconds(value: &Value) -> Result<Option<u64>, String> {
    let minutes = to_number(value)?;
    let seconds = |minutes: i64| match minutes {
        INFINITE => Ok(UNLIMITED_S),
        _ => u64::try_from(minutes).map(|minutes| minutes.saturating_mul(60)).map_err(|_| "less than 0".to_owned()),
    };
    minutes.map(seconds).transpose()
}

/// Returns memory as Slurm's number, in which a bit marks memory for each CPU.
pub(crate) fn memory(memory: Memory) -> Value {
    match memory {
        Memory::Unset => Value::Large(NO_VAL64),
        Memory::PerNodeMb(mb) => Value::Int(mb as i64),
        Memory::PerCpuMb(mb) => Value::Large(MEM_PER_CPU + mb as f64),
    }
}

/// Returns memory that a filter sets as Slurm's number.
pub(crate) fn to_memory(value: &Value) -> Result<Memory, String> {
    if let Value::Large(number) = value
        && (MEM_PER_CPU..NO_VAL64).contains(number)
    {
        return Ok(Memory::PerCpuMb((number - MEM_PER_CPU) as u64));
    }
    Ok(to_mb(value)?.map_or(Memory::Unset, Memory::PerNodeMb))
}

/// Returns a number of MiB that a filter sets.
pub(crate) fn to_mb(value: &Value) -> Result<Option<u64>, String> {
    let number = to_number(value)?;
    number.map(|number| u64::try_from(number).map_err(|_| "less than 0".to_owned())).transpose()
}

/// Returns how a job shares its nodes as Slurm's number.
pub(crate) fn sharing(need: &Need, own_nodes: bool, own_blocks: bool) -> Value {
    Value::Int(match () {
        () if own_blocks => 4,
        () if need.exclusive => 0,
        () if need.oversubscribe => 1,
        () if own_nodes => 2,
        () => NO_VAL16,
    })
}

/// Returns `--mail-type` as Slurm's number.
pub(crate) fn mail(types: Option<&String>) -> Value {
    let bits = |word: &str| match word.trim().to_ascii_uppercase().as_str() {
        "ALL" => MAIL_ALL,
        word => MAIL.iter().find(|(name, _)| *name == word).map_or(0, |(_, bit)| *bit),
    };
    Value::Int(types.iter().flat_map(|types| types.split(',')).fold(0, |all, word| all | bits(word)))
}

/// Returns `--mail-type` that a filter sets as Slurm's number. None: no mail.
pub(crate) fn to_mail(value: &Value) -> Result<Option<String>, String> {
    let bits = to_number(value)?.unwrap_or(0);
    let words: Vec<&str> = MAIL.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name).collect();
    Ok(Some(words.join(",")).filter(|words| !words.is_empty()))
}

/// Returns generic resources as Slurm writes them: `gres/gpu:2`. `gpus`: numbers of GPUs, as `a100:2`.
pub(crate) fn tres(list: Option<&str>, gpus: Option<&GpuCount>) -> Value {
    let items = list.into_iter().flat_map(|list| list.split(',')).filter(|item| !item.is_empty());
    let gpus = gpus.into_iter().flat_map(|count| count.text.split(','));
    let items = items.map(|item| format!("gres/{item}")).chain(gpus.map(|item| format!("gres/gpu:{item}")));
    text(&items.collect::<Vec<_>>().join(","))
}

/// Returns the items of a list as Slurm writes it, or as `--gres` has it: `gres/gpu:2`, `gres:gpu:2`, `gpu:2`.
fn items(list: &str) -> impl Iterator<Item = &str> {
    let plain = |item| str::strip_prefix(item, "gres/").or_else(|| item.strip_prefix("gres:")).unwrap_or(item);
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(plain)
}

/// Returns generic resources of each node that a filter sets.
pub(crate) fn to_gres(value: &Value) -> Result<Option<String>, String> {
    let Some(list) = to_text(value)? else { return Ok(None) };
    let list = items(&list).collect::<Vec<_>>().join(",");
    if gres::parse(&list).is_none() {
        return Err(format!("`{list}` is no list of generic resources"));
    }
    Ok(Some(list))
}

/// Returns numbers of GPUs that a filter sets, as `gres/gpu:2`.
pub(crate) fn to_gpus(value: &Value) -> Result<Option<GpuCount>, String> {
    let Some(list) = to_text(value)? else { return Ok(None) };
    let count = |item| if item == "gpu" { Some("1") } else { str::strip_prefix(item, "gpu:") };
    let counts: Option<Vec<&str>> = items(&list).map(count).collect();
    let counts = counts.and_then(|counts| GpuCount::parse(&counts.join(",")));
    counts.map(Some).ok_or_else(|| format!("`{list}` is no number of GPUs: as gres/gpu:2"))
}

/// Returns the number in `gres/gpu:N` that a filter sets.
pub(crate) fn to_per_gpu(value: &Value) -> Result<Option<u64>, String> {
    let Some(list) = to_text(value)? else { return Ok(None) };
    let count = items(&list).next().and_then(|item| item.strip_prefix("gpu:")).and_then(|count| count.parse().ok());
    count.map(Some).ok_or_else(|| format!("`{list}` is no number for each GPU: as gres/gpu:2"))
}

/// Returns a dependency in the form of the option.
pub(crate) fn dependency(dependency: Option<&Dependency>) -> Value {
    let Some(dependency) = dependency else { return Value::Nil };
    let terms = dependency.terms.iter().map(|term| {
        let Some(job) = term.job else { return term.when.word().to_owned() };
        let index = job.index.map_or_else(String::new, |index| format!("_{index}"));
        let delay = if job.delay_min > 0 { format!("+{}", job.delay_min) } else { String::new() };
        format!("{}:{}{index}{delay}", term.when.word(), job.id)
    });
    text(&terms.collect::<Vec<_>>().join(if dependency.any { "?" } else { "," }))
}
