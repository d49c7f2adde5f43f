//! Options about containers, and about what the site's nodes do for a job beside running it.

use squall_model::job::container::{Container, Mount};
use squall_model::step::X11Nodes;

use crate::options::Arg::{Maybe, Needed, None as Flag};
use crate::options::submit::SubmitOptions;
use crate::options::table::{ignore, limited, some};
use crate::options::{GivenOption, NO, Opt, Source, Stop, Tools, opt};

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
            let bundle = Some(absolute(given)?);
            let (image, name) = (by_variable(asked, "container-image"), by_variable(asked, "container-name"));
            let container = container(asked);
            container.bundle = bundle;
            container.image = container.image.take().filter(|_| !image);
            container.name = container.name.take().filter(|_| !name);
            Ok(())
        },
    ),
    opt(
        "container-entrypoint",
        NO,
        Flag,
        Tools::ALL,
        &["PYXIS_CONTAINER_ENTRYPOINT"],
        "run the image's entrypoint before the command",
        |asked, given| {
            container(asked).entrypoint = either(asked, given, true)?;
            Ok(())
        },
    ),
    opt(
        "container-entrypoint-log",
        NO,
        Flag,
        Tools::ALL,
        &["PYXIS_CONTAINER_ENTRYPOINT_LOG"],
        "print what the entrypoint prints",
        ignore,
    )
    .hint("the output of an entrypoint is always the task's"),
    opt(
        "container-env",
        NO,
        Needed("names"),
        Tools::ALL,
        &["PYXIS_CONTAINER_ENV"],
        "variables of which the job's value counts and not the image's, separated by commas",
        container_env,
    ),
    opt(
        "container-image",
        NO,
        Needed("image"),
        Tools::ALL,
        &["PYXIS_CONTAINER_IMAGE"],
        "run in a container of this image, by enroot or apptainer: ubuntu:24.04, or a file",
        |asked, given| {
            if given.text().is_empty() {
                return Err(given.invalid("name an image, such as ubuntu:24.04"));
            }
            let bundle = by_variable(asked, "container");
            let image = some(given)?;
            let container = container(asked);
            container.image = image;
            container.bundle = container.bundle.take().filter(|_| !bundle);
            Ok(())
        },
    ),
    opt(
        "container-mount-home",
        NO,
        Flag,
        Tools::ALL,
        &["PYXIS_CONTAINER_MOUNT_HOME"],
        "the container sees your home",
        |asked, given| {
            container(asked).mount_home = either(asked, given, true)?;
            Ok(())
        },
    ),
    opt(
        "container-mounts",
        NO,
        Needed("list"),
        Tools::ALL,
        &["PYXIS_CONTAINER_MOUNTS"],
        "folders that the container sees: SOURCE[:TARGET[:ro]], separated by commas",
        container_mounts,
    ),
    opt(
        "container-name",
        NO,
        Needed("name"),
        Tools::ALL,
        &["PYXIS_CONTAINER_NAME"],
        "keep the container of --container-image on the nodes under this name, or use it again (enroot)",
        container_name,
    )
    .partly("NAME:exec is refused: a task joins no running container"),
    opt(
        "container-readonly",
        NO,
        Flag,
        Tools::ALL,
        &["PYXIS_CONTAINER_READONLY"],
        "the container's root file system is read-only",
        |asked, given| {
            container(asked).writable = either(asked, given, false)?;
            Ok(())
        },
    ),
    opt(
        "container-remap-root",
        NO,
        Flag,
        Tools::ALL,
        &["PYXIS_CONTAINER_REMAP_ROOT"],
        "be root inside the container, with no more rights outside",
        |asked, given| {
            container(asked).remap_root = either(asked, given, true)?;
            Ok(())
        },
    ),
    opt(
        "container-save",
        NO,
        Needed("path"),
        Tools::ALL,
        &["PYXIS_CONTAINER_SAVE"],
        "write the container to this squashfs file of the node when its task has ended (enroot)",
        |asked, given| {
            if given.text().is_empty() || given.text().ends_with('/') {
                return Err(given.invalid("name a file"));
            }
            container(asked).save = some(given)?;
            Ok(())
        },
    ),
    opt("container-unshare", NO, Needed("list"), Tools::ALL, &["PYXIS_CONTAINER_UNSHARE"], "", |_, given| {
        Err(given.not_done(UNSHARE))
    })
    .refused(UNSHARE),
    opt(
        "container-workdir",
        NO,
        Needed("path"),
        Tools::ALL,
        &["PYXIS_CONTAINER_WORKDIR"],
        "working directory in the container",
        |asked, given| {
            if !given.text().starts_with('/') {
                return Err(given.invalid("use an absolute path"));
            }
            container(asked).work_dir = some(given)?;
            Ok(())
        },
    ),
    opt(
        "container-writable",
        NO,
        Flag,
        Tools::ALL,
        &["PYXIS_CONTAINER_WRITABLE"],
        "the container's root file system is writable",
        |asked, given| {
            container(asked).writable = either(asked, given, true)?;
            Ok(())
        },
    ),
    opt("no-container-entrypoint", NO, Flag, Tools::ALL, &[], "leave the image's entrypoint out", |asked, given| {
        container(asked).entrypoint = either(asked, given, false)?;
        Ok(())
    }),
    opt(
        "no-container-mount-home",
        NO,
        Flag,
        Tools::ALL,
        &[],
        "the container does not see your home",
        |asked, given| {
            container(asked).mount_home = either(asked, given, false)?;
            Ok(())
        },
    ),
    opt("no-container-remap-root", NO, Flag, Tools::ALL, &[], "be yourself inside the container", |asked, given| {
        container(asked).remap_root = either(asked, given, false)?;
        Ok(())
    }),
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

const UNSHARE: &str = "a container has its node's network, shared memory and name, by which ranks meet: leave it out";

/// Options of which at most one may be given.
const OPPOSITES: [[&str; 2]; 4] = [
    ["container-entrypoint", "no-container-entrypoint"],
    ["container-mount-home", "no-container-mount-home"],
    ["container-remap-root", "no-container-remap-root"],
    ["container-writable", "container-readonly"],
];

/// Options about a container that is asked for by another option.
const DETAILS: [&str; 13] = [
    "container-mounts",
    "container-workdir",
    "container-entrypoint",
    "no-container-entrypoint",
    "container-entrypoint-log",
    "container-env",
    "container-mount-home",
    "no-container-mount-home",
    "container-remap-root",
    "no-container-remap-root",
    "container-writable",
    "container-readonly",
    "container-save",
];

/// Options that a bundle (`--container`) can't have, with the reason.
const OF_IMAGES: [(&str, &str); 5] = [
    ("container-image", "--container names a bundle, which has its own files: leave one of them out"),
    ("container-name", "--container names a bundle, which stays in its folder: leave the name out"),
    ("container-entrypoint", "a bundle has only its command, which the task's replaces: run it in the task"),
    ("no-container-remap-root", "the user of a bundle is the bundle's, or root inside: outside it is you in any case"),
    ("container-save", "a bundle is a folder, which keeps what is written with --container-writable: copy it"),
];

/// Returns the option of which at most one may be given beside this one. None: there is no such option.
pub fn opposite(long: &str) -> Option<&'static str> {
    OPPOSITES.iter().find_map(|[one, other]| match long {
        _ if long == *one => Some(*other),
        _ if long == *other => Some(*one),
        _ => None,
    })
}

/// Checks options about containers against each other. A variable that fits to no container has no effect.
pub fn verify(asked: &SubmitOptions) -> Result<(), Stop> {
    let given = |long: &str| asked.sources.contains_key(long) && !by_variable(asked, long);
    let Some(container) = asked.spec.options.container() else {
        let stray = DETAILS.iter().find(|long| given(long));
        return stray.map_or(Ok(()), |long| Err(Stop::bad(format!("--{long} needs --container or --container-image"))));
    };
    if container.bundle.is_some()
        && let Some((long, why)) = OF_IMAGES.iter().find(|(long, _)| given(long))
    {
        return Err(Stop::bad(format!("--{long}: {why}")));
    }
    Ok(())
}

/// Returns what is asked for about the container.
fn container(asked: &mut SubmitOptions) -> &mut Container {
    asked.spec.options.container.get_or_insert_default()
}

/// Returns whether an option is given by an environment variable.
fn by_variable(asked: &SubmitOptions, long: &str) -> bool {
    matches!(asked.sources.get(long), Some(Source::Variable(_)))
}

/// Returns the value of a flag of pyxis that has an opposite; fails if both are given. `yes`: what the flag stands for.
fn either(asked: &SubmitOptions, given: &GivenOption<'_>, yes: bool) -> Result<Option<bool>, Stop> {
    let (long, variable) = (given.option.long, matches!(given.source, Source::Variable(_)));
    match opposite(long) {
        Some(other) if !variable && asked.sources.contains_key(other) && !by_variable(asked, other) => {
            Err(Stop::bad(format!("--{long} and --{other} are both given: leave one of them out")))
        }
        _ => Ok(Some(yes == given.set)),
    }
}

/// Adds to `--container-mounts`. What a variable gave counts only if no option gives mounts.
fn container_mounts(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    let remedy = "use SOURCE[:TARGET[:FLAG+FLAG]], separated by commas: a source is a path, tmpfs or umount, a target a \
                  path, a flag ro, rw or one of mount's";
    let mounts = Mount::parse_all(&limited(given)?).ok().filter(|mounts| !mounts.is_empty());
    let mounts = mounts.ok_or_else(|| given.invalid(remedy))?;
    let before = by_variable(asked, "container-mounts");
    let all = &mut container(asked).mounts;
    if before {
        all.clear();
    }
    for mount in mounts {
        if !all.contains(&mount) {
            all.push(mount);
        }
    }
    Ok(())
}

/// Adds to `--container-env`. What a variable gave counts only if no option gives names.
fn container_env(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    let plain = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let text = limited(given)?;
    if !text.split(',').all(plain) {
        return Err(given.invalid("use names of variables, separated by commas"));
    }
    let before = by_variable(asked, "container-env");
    let all = &mut container(asked).env;
    if before {
        all.clear();
    }
    all.extend(text.split(',').map(str::to_owned));
    Ok(())
}

/// Returns the value as an absolute path.
fn absolute(given: &GivenOption<'_>) -> Result<String, Stop> {
    let text = limited(given)?;
    if text.is_empty() {
        return Err(given.invalid("name the folder of a bundle"));
    }
    let path = std::path::absolute(&text).map_err(|e| given.invalid(&e.to_string()))?;
    Ok(path.to_string_lossy().into_owned())
}

fn container_name(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let text = limited(given)?;
    let (name, how) = text.split_once(':').unwrap_or((&text, ""));
    if name.is_empty() || !name.chars().all(plain) {
        return Err(given.invalid("use letters, digits, `-`, `_` and `.`, and :create or :no_exec behind them"));
    }
    let create = match how {
        "" | "auto" | "no_exec" => false,
        "create" => true,
        "exec" => {
            return Err(given.not_done("a task joins no running container: leave out :exec, it has the same files"));
        }
        _ => return Err(given.invalid("behind the name use :create or :no_exec")),
    };
    let bundle = by_variable(asked, "container");
    let container = container(asked);
    (container.name, container.create) = (Some(name.to_owned()), create);
    container.bundle = container.bundle.take().filter(|_| !bundle);
    Ok(())
}

/// Sets `--x11`. Without a display, as is usual in scripts, the message is Slurm's.
fn x11(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
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
