//! A service of one method, without a file in the interface language.

fn main() {
    let method = tonic_build::manual::Method::builder()
        .name("call")
        .route_name("Call")
        .input_type("crate::Data")
        .output_type("crate::Data")
        .codec_path("tonic::codec::ProstCodec")
        .build();
    let service =
        tonic_build::manual::Service::builder().name("Bench").package("bench").method(method);
    tonic_build::manual::Builder::new().compile(&[service.build()]);
}
