//! The client-facing side of HTTP/1: request heads and bodies in, response heads and bodies out.
//!
//! No I/O and no clock: everything works on buffers that the caller fills and empties. It is
//! strict where RFC 9112 leaves a choice, since code inside a sandbox writes these octets, and
//! what reaches an origin is written anew from what was understood here, never copied through.
//!
//! One request goes: [`HeadReader`] → [`host_field`] and [`body_length`] → [`Connection`] and the
//! `forward_*` filters → [`BodyDecoder`]; its answer: [`Recipient`] → [`BodyEncoder`] →
//! [`write_final_head`] → [`BodyEncoder::encode`] and [`BodyEncoder::finish`]. After any error of
//! the request side the connection is closed: what follows cannot be trusted to be a request.

mod body;
mod chunk;
mod connection;
mod encode;
mod fields;
mod filter;
mod foreign;
mod framing;
mod head;
mod host;
mod request;
mod syntax;
mod write;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;

pub use body::{BodyDecoder, BodyError, Decoded, MAX_TRAILERS, MAX_TRAILERS_BYTES, Trailers};
pub use chunk::{ChunkError, MAX_CHUNK_LINE};
pub use connection::{Connection, expects_continue, max_forwards, wants_websocket};
pub use encode::{Abort, BodyEncoder, EncodeError, Frame, Recipient};
pub use fields::FieldError;
pub use filter::{announced_trailers, forward_request_field, forward_response_field, forward_trailer_field};
pub use foreign::Foreign;
pub use framing::{BodyLength, FramingError, body_length};
pub use head::{HeadError, HeadReader, MAX_FIELDS, MAX_FIELDS_BYTES, MAX_METHOD, MAX_REQUEST_LINE};
pub use host::{HostFieldError, host_field};
pub use request::{RequestHead, Version};
pub use write::{WriteError, write_final_head, write_interim_head};
