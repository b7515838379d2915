//! Lists the kernels that this program was built with.

fn main() {
    println!("{}, for {}", kernels::LIBRARY, kernels::TARGETS.join(", "));
    for image in kernels::images() {
        println!("{} {} {} bytes", image.id, image.kind, image.bytes.len());
    }
}
