//! How well images suit devices: of each line `kind target isa device driver_version`, the rank, or why it is refused.

use std::io::BufRead;

use kernels::variants::softmax_fp32_1024::SM_80;
use kernels::{judge, Device, Image, Kind};

fn main() {
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let [kind, target, isa, device, version] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let mut image: Image = SM_80.clone();
        image.kind = match kind {
            "cubin" => Kind::Cubin,
            "ptx" => Kind::Ptx,
            _ => Kind::Hsaco,
        };
        image.target = target.to_owned().leak();
        image.ptx_isa = (kind == "ptx" && isa != "-").then(|| &*isa.to_owned().leak());
        let device = match device.strip_prefix("sm_") {
            Some(capability) => {
                Device::nvidia(capability.parse().unwrap(), version.parse().unwrap())
            }
            None => Device::amd(device),
        };
        match judge(Box::leak(Box::new(image)), &device, None) {
            Ok(rank) => println!("{rank}"),
            Err(refusal) => println!("{refusal}"),
        }
    }
}
