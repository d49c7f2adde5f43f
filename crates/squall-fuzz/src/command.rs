//! Slurm's configuration. `squall import` is part of the program and of no library; the part that translates texts
//! is compiled here once more.

#[path = "../../squall-cli/src/command/import"]
pub(crate) mod import {
    #![expect(dead_code, reason = "the program uses the rest")]

    mod beside;
    mod globals;
    mod keys;
    mod lines;
    mod nodes;
    mod parse;
    mod partitions;
    mod report;
    mod translate;
    mod value;

    /// slurm.conf, gres.conf, cgroup.conf and job_container.conf, with zero bytes between them.
    pub(crate) fn slurm_conf(bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let mut texts = text.split('\0');
        let site = translate::Site {
            name: "slurm.conf",
            text: texts.next().unwrap_or_default(),
            read: &|name| Err(format!("{name} is not there")),
            devices: texts.next(),
            confinement: texts.next(),
            folders: texts.next(),
            topology: None,
            submit: None,
            others: &[],
            here: &["head".to_owned()],
        };
        drop(translate::translate(&site));
    }
}

pub(crate) fn slurm_conf(bytes: &[u8]) {
    import::slurm_conf(bytes);
}
