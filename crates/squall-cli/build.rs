//! Has the program `squall` export the functions that SPANK plugins call, for these to find when they are loaded.

use std::path::Path;

fn main() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins.list");
    println!("cargo::rerun-if-changed=plugins.list");
    println!("cargo::rustc-link-arg-bin=squall=-Wl,--dynamic-list={}", list.display());
}
