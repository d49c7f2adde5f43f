//! Has the program `squall` export the functions that SPANK plugins call, for these to find when they are loaded.

use std::path::Path;

fn main() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins.list");
    println!("cargo::rerun-if-changed=plugins.list");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    // Zig's linker, which builds for old C libraries, takes no list. With packaging/portable-build all of C's functions but
    // these are hidden.
    let is_zig = std::env::var("RUSTC_LINKER").is_ok_and(|linker| linker.contains("zigcc"));
    let argument = if is_zig { "-rdynamic".to_owned() } else { format!("-Wl,--dynamic-list={}", list.display()) };
    println!("cargo::rustc-link-arg-bin=squall={argument}");
}
