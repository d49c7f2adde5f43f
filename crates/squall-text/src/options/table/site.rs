//! Options about containers, and about what the site's nodes do for a job beside running it.

use squall_model::job::container::Mount;
use squall_model::step::X11Nodes;

use crate::options::Arg::{Maybe, Needed};
use crate::options::asked::Asked;
use crate::options::table::{limited, some};
use crate::options::{Given, NO, Opt, Stop, Tools, opt};

/// Entries of the options about containers.
pub const OPTIONS: &[Opt] = &[
    opt(
        "container",
        NO,
        Needed("bundle"),
        Tools::ALL,
        &["SBATCH_CONTAINER", "SALLOC_CONTAINER", "SRUN_CONTAINER", "SLURM_CONTAINER"],
        "run in a container: the folder of an OCI bundle, on every node",
        |asked, given| {
            asked.spec.options.container.get_or_insert_default().bundle = Some(absolute(given)?);
            Ok(())
        },
    ),
    opt(
        "container-image",
        NO,
        Needed("image"),
        Tools::ALL,
        &[],
        "run in a container of this image, by enroot or apptainer: ubuntu:24.04, or a file",
        |asked, given| {
            asked.spec.options.container.get_or_insert_default().image = some(given)?;
            Ok(())
        },
    ),
    opt(
        "container-mounts",
        NO,
        Needed("list"),
        Tools::ALL,
        &[],
        "folders that the container sees: SOURCE[:TARGET[:ro]], separated by commas",
        |asked, given| {
            asked.spec.options.container.get_or_insert_default().mounts = Mount::parse_all(&limited(given)?)
                .map_err(|_| given.invalid("use absolute paths: SOURCE[:TARGET[:ro|rw]], separated by commas"))?;
            Ok(())
        },
    ),
    opt(
        "container-name",
        NO,
        Needed("name"),
        Tools::ALL,
        &[],
        "keep the container of --container-image on the nodes under this name, or use it again (enroot)",
        container_name,
    ),
    opt(
        "container-workdir",
        NO,
        Needed("path"),
        Tools::ALL,
        &[],
        "working directory in the container",
        |asked, given| {
            if !given.text().starts_with('/') {
                return Err(given.invalid("use an absolute path"));
            }
            asked.spec.options.container.get_or_insert_default().work_dir = some(given)?;
            Ok(())
        },
    ),
    opt(
        "x11",
        NO,
        Maybe("all|first|last|batch"),
        Tools::SRUN.and(Tools::SALLOC),
        &["SLURM_X11"],
        "show windows of tasks on your display; which nodes of a step have it",
        x11,
    ),
];

/// Returns the value as an absolute path.
fn absolute(given: &Given<'_>) -> Result<String, Stop> {
    let text = limited(given)?;
    if text.is_empty() {
        return Err(given.invalid("name the folder of a bundle"));
    }
    let path = std::path::absolute(&text).map_err(|e| given.invalid(&e.to_string()))?;
    Ok(path.to_string_lossy().into_owned())
}

fn container_name(asked: &mut Asked, given: &Given<'_>) -> Result<(), Stop> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if given.text().is_empty() || !given.text().chars().all(plain) {
        return Err(given.invalid("use letters, digits, `-`, `_` and `.`"));
    }
    asked.spec.options.container.get_or_insert_default().name = some(given)?;
    Ok(())
}

/// Sets `--x11`. Without a display, as is usual in scripts, the message is Slurm's.
fn x11(asked: &mut Asked, given: &Given<'_>) -> Result<(), Stop> {
    if std::env::var_os("DISPLAY").is_none_or(|display| display.is_empty()) {
        let line = "No DISPLAY variable set, cannot setup x11 forwarding.".to_owned();
        return Err(Stop::Bad { lines: vec![line], exit: 255 });
    }
    if X11Nodes::parse(given.text()).is_none() {
        return Err(given.invalid("use all, first, last or batch"));
    }
    let word = given.value.filter(|word| !word.is_empty()).unwrap_or("all");
    asked.spec.options.x11 = Some(word.to_owned());
    Ok(())
}
