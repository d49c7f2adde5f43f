//! Writes the seeds of each fuzz target to a folder of its name: `seeds DIR`.

use std::fs;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "fuzz/corpus".into()));
    for (target, _) in squall_fuzz::TARGETS {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        for (n, seed) in squall_fuzz::seeds(target).iter().enumerate() {
            fs::write(folder.join(format!("seed-{n}")), seed)?;
        }
    }
    Ok(())
}
