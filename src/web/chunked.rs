//! Chunked bodies. actix keeps draining an unread body after the response, without an end. If the body still exists when the
//! response is sent, actix closes the connection instead, so it is kept until then.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::HttpMessage;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest};
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::poll_fn;

type Shared = Rc<RefCell<Payload>>;

/// The body of a request, if it is chunked. The handler can still read it.
pub fn keep(request: &mut ServiceRequest) -> Option<Shared> {
    if !request.chunked().unwrap_or(false) {
        return None;
    }
    let kept = Rc::new(RefCell::new(request.take_payload()));
    let read = kept.clone();
    let payload = Box::pin(poll_fn(move |cx| Pin::new(&mut *read.borrow_mut()).poll_next(cx)));
    request.set_payload(Payload::Stream { payload });
    Some(kept)
}

/// The answer, which keeps the request's body alive.
pub fn answer(body: BoxBody, kept: Shared) -> BoxBody {
    BoxBody::new(Answer { body, _kept: kept })
}

struct Answer {
    body: BoxBody,
    _kept: Shared,
}

impl MessageBody for Answer {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}
