//! Compiles the functions of SPANK that take any number of arguments, which only C can define.

fn main() {
    let source = "src/sys/spank/variadic.c";
    println!("cargo::rerun-if-changed={source}");
    cc::Build::new().file(source).compile("squallspank");
}
