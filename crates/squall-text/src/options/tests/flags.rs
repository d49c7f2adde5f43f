//! Tests of flags that variables set and reset, and of the options of pyxis.

use std::collections::BTreeMap;

use squall_model::job::container::Container;
use squall_model::job::options::{Chosen, Options};

use super::{Arg, Source, Stop, SubmitOptions, Tool, collect, complaint, read, table};
use crate::options::Effect;

const TOOLS: [Tool; 3] = [Tool::Sbatch, Tool::Srun, Tool::Salloc];

/// Returns the request that a script, variables and a command line describe together.
fn asked(tool: Tool, script: &str, variables: &[(&str, &str)], line: &str) -> Result<SubmitOptions, Stop> {
    let mut asked = SubmitOptions::new(tool);
    let words = super::words(script);
    for found in collect::line(tool, &words)?.options {
        collect::apply_option(&mut asked, tool, &found, &Source::Script(2))?;
    }
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    collect::apply_variables(&mut asked, tool, &lookup)?;
    let words = super::words(line);
    collect::apply_line(&mut asked, tool, &collect::line(tool, &words)?)?;
    collect::verify(&asked)?;
    Ok(asked)
}

/// Returns all that the request has but where its options came from.
fn request(mut asked: SubmitOptions) -> String {
    if asked.spec.options.get().is_some_and(|chosen| *chosen == Chosen::default()) {
        asked.spec.options = Options::default();
    }
    format!("{:?}", SubmitOptions { sources: BTreeMap::default(), given: BTreeMap::default(), ..asked })
}

// faults.md F4: "", yes and a number other than 0 set a flag, and all else resets it.
#[test]
fn f4_a_variable_sets_or_resets_each_flag_of_the_table() {
    let mut tried = 0;
    for tool in TOOLS {
        let flags = table::options_of(tool).filter(|option| option.arg == Arg::None && option.long != "verbose");
        for option in flags {
            for variable in option.env.iter().filter(|name| tool.reads(name) && !name.starts_with("PYXIS_")) {
                let flag = format!("--{}", option.long);
                let of = |script: &str, value: &str| asked(tool, script, &[(variable, value)], "").map(request);
                let (unset, set) = (asked(tool, "", &[], "").map(request), asked(tool, "", &[], &flag).map(request));
                for value in ["", "yes", "YES", "1", "-1", "+7", " 1", "99999999999999999999"] {
                    let refused = matches!(option.effect, Effect::Refused(_));
                    let heard = of("", value);
                    assert!(if refused { heard.is_err() } else { heard == set }, "{variable}={value}: {heard:?}");
                }
                for value in ["0", "no", "n", "true", "y", "off", "1x", " ", "-", "00"] {
                    assert_eq!(of("", value), unset, "{variable}={value}");
                    if set.is_ok() {
                        assert_eq!(of(&flag, value), unset, "{variable}={value} resets what the script sets");
                    }
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 20, "{tried}");
    let requeue = |value: &str| asked(Tool::Sbatch, "", &[("SBATCH_REQUEUE", value)], "").unwrap().spec.requeue;
    assert_eq!(["", "yes", "1", "0", "no"].map(requeue), [Some(true), Some(true), Some(true), None, None]);
    let level = |value: &str| asked(Tool::Srun, "", &[("SLURM_DEBUG", value)], "").unwrap().verbose;
    assert_eq!(["0", "2"].map(level), [0, 2], "a number of times");
}

fn container(asked: Result<SubmitOptions, Stop>) -> Container {
    asked.unwrap().spec.options.container.as_deref().cloned().unwrap_or_default()
}

// faults.md P1: every option of pyxis, in all three commands and in scripts.
#[test]
fn p1_options_of_pyxis_are_taken_everywhere() {
    let image = "--container-image=ubuntu:24.04";
    for (option, want) in [
        ("--container-mount-home", Container { mount_home: Some(true), ..Container::default() }),
        ("--no-container-mount-home", Container { mount_home: Some(false), ..Container::default() }),
        ("--container-writable", Container { writable: Some(true), ..Container::default() }),
        ("--container-readonly", Container { writable: Some(false), ..Container::default() }),
        ("--container-remap-root", Container { remap_root: Some(true), ..Container::default() }),
        ("--no-container-remap-root", Container { remap_root: Some(false), ..Container::default() }),
        ("--container-entrypoint", Container { entrypoint: Some(true), ..Container::default() }),
        ("--no-container-entrypoint", Container { entrypoint: Some(false), ..Container::default() }),
        ("--container-entrypoint-log", Container::default()),
        ("--container-env=A,B_2", Container { env: vec!["A".into(), "B_2".into()], ..Container::default() }),
        ("--container-save=./x.sqsh", Container { save: Some("./x.sqsh".into()), ..Container::default() }),
        ("--container-workdir=/w", Container { work_dir: Some("/w".into()), ..Container::default() }),
        ("--container-name=n:create", Container { name: Some("n".into()), create: true, ..Container::default() }),
        ("--container-name=n:no_exec", Container { name: Some("n".into()), ..Container::default() }),
    ] {
        let want = Container { image: Some("ubuntu:24.04".into()), ..want };
        for tool in TOOLS {
            let line = format!("{image} {option}");
            assert_eq!(container(read(tool, &line)), want, "{tool:?} {line}");
            assert_eq!(container(asked(tool, &line, &[], "")), want, "{tool:?}, script: {line}");
        }
    }
    let more = "--container-mounts=/a:/b --container-mounts=/a:/b,tmpfs:/t --container-env=A --container-env=B";
    let both = container(read(Tool::Srun, &format!("{image} {more}")));
    assert_eq!((both.mounts.len(), both.env.len()), (2, 2), "several add up");
}

#[test]
fn p1_variables_of_pyxis_count_less_than_options_and_have_its_words() {
    let image = ("PYXIS_CONTAINER_IMAGE", "i");
    let of = |script: &str, variable: (&str, &str), line: &str| {
        container(asked(Tool::Sbatch, script, &[image, variable], line))
    };
    for (variable, value, want) in [
        ("PYXIS_CONTAINER_MOUNT_HOME", "1", Container { mount_home: Some(true), ..Container::default() }),
        ("PYXIS_CONTAINER_MOUNT_HOME", "n", Container { mount_home: Some(false), ..Container::default() }),
        ("PYXIS_CONTAINER_MOUNT_HOME", "maybe", Container::default()),
        ("PYXIS_CONTAINER_REMAP_ROOT", "true", Container { remap_root: Some(true), ..Container::default() }),
        ("PYXIS_CONTAINER_ENTRYPOINT", "no", Container { entrypoint: Some(false), ..Container::default() }),
        ("PYXIS_CONTAINER_WRITABLE", "y", Container { writable: Some(true), ..Container::default() }),
        ("PYXIS_CONTAINER_READONLY", "1", Container { writable: Some(false), ..Container::default() }),
        ("PYXIS_CONTAINER_READONLY", "0", Container { writable: Some(true), ..Container::default() }),
        ("PYXIS_CONTAINER_NAME", "n", Container { name: Some("n".into()), ..Container::default() }),
        ("PYXIS_CONTAINER_SAVE", "s", Container { save: Some("s".into()), ..Container::default() }),
        ("PYXIS_CONTAINER_ENV", "A", Container { env: vec!["A".into()], ..Container::default() }),
        ("PYXIS_CONTAINER_WORKDIR", "/w", Container { work_dir: Some("/w".into()), ..Container::default() }),
        ("PYXIS_CONTAINER_ENTRYPOINT_LOG", "1", Container::default()),
    ] {
        let want = Container { image: Some("i".into()), ..want };
        assert_eq!(of("", (variable, value), ""), want, "{variable}={value}");
    }
    let home = ("PYXIS_CONTAINER_MOUNT_HOME", "1");
    assert_eq!(of("--no-container-mount-home", home, "").mount_home, Some(false), "a script counts more");
    assert_eq!(of("", home, "--no-container-mount-home").mount_home, Some(false));
    let mounts = |line: &str| of("", ("PYXIS_CONTAINER_MOUNTS", "/env"), line).mounts.remove(0).source;
    assert_eq!((mounts("").as_str(), mounts("--container-mounts=/line").as_str()), ("/env", "/line"));
    assert_eq!(of("", home, "--container-image=j").image.as_deref(), Some("j"));
    assert_eq!(of("", home, "--container=/b").image, None, "a bundle that is given, and no image");
    // Without a container they are of no effect.
    let alone = asked(Tool::Srun, "", &[home, ("PYXIS_CONTAINER_WRITABLE", "0")], "").unwrap();
    assert!(alone.spec.options.container().is_none());
}

#[test]
fn p1_options_of_pyxis_that_do_not_fit_are_refused_by_name() {
    for (line, said) in [
        ("--container-writable", "--container-writable needs --container or --container-image"),
        ("--no-container-mount-home", "--no-container-mount-home needs --container or"),
        ("--container-entrypoint-log", "--container-entrypoint-log needs"),
        (
            "--container-image=i --container-writable --container-readonly",
            "--container-readonly and --container-writable",
        ),
        ("--container-image=i --container-remap-root --no-container-remap-root", "leave one of them out"),
        ("--container=/b --container-image=i", "--container-image: --container names a bundle"),
        ("--container=/b --container-name=n", "--container-name: --container names a bundle"),
        ("--container=/b --container-entrypoint", "--container-entrypoint: a bundle has only its command"),
        ("--container=/b --no-container-remap-root", "--no-container-remap-root: the user of a bundle is the bundle's"),
        ("--container=/b --container-save=/f", "--container-save: a bundle is a folder"),
        ("--container-image=", "Invalid --container-image specification"),
        ("--container-image=i --container-mounts=", "Invalid --container-mounts specification"),
        ("--container-image=i --container-mounts=:", "Invalid --container-mounts specification"),
        ("--container-image=i --container-mounts=devpts:/x", "Invalid --container-mounts specification"),
        ("--container-image=i --container-env=A,,B", "Invalid --container-env specification"),
        ("--container-image=i --container-save=/d/", "Invalid --container-save specification"),
        ("--container-image=i --container-name=n:exec", "--container-name=n:exec: a task joins no running container"),
        ("--container-image=i --container-name=n:x", "Invalid --container-name specification"),
        ("--container-image=i --container-unshare=net", "--container-unshare=net: a container has its node's network"),
    ] {
        for tool in TOOLS {
            let heard = complaint(tool, line);
            assert!(heard.contains(said), "{tool:?} {line}: {heard}");
        }
    }
}
