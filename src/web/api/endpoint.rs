//! A row of the route table: a method, a path, its handler, and what the API's own description says about it. Routes and
//! description are made from the same rows, so neither can lack what the other has.

use std::borrow::Cow;

use actix_web::http::Method;
use actix_web::web;
use actix_web::{FromRequest, Handler, Responder, Route, guard};
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{Ref, RefOr, Required, Schema};
use utoipa::{IntoParams, ToSchema};

use crate::base::error::Error;
use crate::house::operators::Role;

pub struct Endpoint {
    pub method: Method,
    /// Below the prefix, with names in braces for what varies.
    pub path: &'static str,
    route: Box<dyn Fn() -> Route>,
    /// Whether its body may be a whole concert.
    pub large_body: bool,
    /// Whether it is about the default event where its path names none.
    pub of_an_event: bool,
    pub summary: &'static str,
    pub details: &'static str,
    pub caller: Caller,
    pub parameters: Vec<Parameter>,
    pub body: Option<RequestShape>,
    pub answers: Vec<Answer>,
    /// One of each refusal that only this endpoint knows. Those that follow from the caller, the path and the body are added
    /// by the description.
    pub errors: Vec<Error>,
}

/// An endpoint at its place in the API.
pub struct Row {
    /// What its path begins with.
    pub prefix: &'static str,
    pub group: Group,
    pub endpoint: Endpoint,
}

impl Row {
    pub fn path(&self) -> String {
        format!("{}{}", self.prefix, self.endpoint.path)
    }
}

/// What belongs together in the description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Sale,
    House,
    Operators,
}

impl Group {
    pub const ALL: [Self; 3] = [Self::Sale, Self::House, Self::Operators];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sale => "Sale",
            Self::House => "Concerts and people",
            Self::Operators => "Operators",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Self::Sale => "The line, the seats and the tickets of an event.",
            Self::House => "What is offered, and people with their money.",
            Self::Operators => "What operators see and do while a sale runs.",
        }
    }
}

/// What a caller sends to say who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    Anyone,
    /// A queue token in its header.
    Visitor,
    MaybeVisitor,
    /// A queue token, and an API key if a person pays.
    Buyer,
    /// The queue token that bought, or the API key of the person who did.
    TicketOwner,
    /// The same, or nobody.
    MaybeOwner,
    /// An API key.
    Person,
    MaybePerson,
    /// The key of an operator whose role includes this one.
    Operator(Role),
}

/// A body that a caller sends.
pub struct RequestShape {
    pub required: bool,
    pub shape: Shape,
}

/// An answer that is no error.
pub struct Answer {
    pub status: u16,
    pub text: &'static str,
    pub content: Content,
    /// Names and meanings of headers besides those that every answer has.
    pub headers: Vec<(&'static str, &'static str)>,
}

pub enum Content {
    Nothing,
    Json(Shape),
    /// A list of these.
    List(Shape),
    /// A list of these in the field `items`.
    Items(Shape),
    /// The same, a page at a time.
    Page(Shape),
    Stream,
}

/// The schema of a type, made when it is asked for.
pub struct Shape {
    name: fn() -> Cow<'static, str>,
    schema: fn() -> RefOr<Schema>,
    parts: fn(&mut Vec<(String, RefOr<Schema>)>),
}

impl Shape {
    pub fn of<T: ToSchema>() -> Self {
        Self { name: T::name, schema: T::schema, parts: T::schemas }
    }

    /// Adds the schema and those it refers to, and refers to it.
    pub fn refer(&self, schemas: &mut Vec<(String, RefOr<Schema>)>) -> RefOr<Schema> {
        (self.parts)(schemas);
        let name = (self.name)().into_owned();
        let reference = Ref::from_schema_name(&name);
        schemas.push((name, (self.schema)()));
        reference.into()
    }
}

macro_rules! methods {
    ($($name:ident $method:ident),*) => { $(
        pub fn $name<F, A>(path: &'static str, handler: F) -> Endpoint
        where
            F: Handler<A>,
            A: FromRequest + 'static,
            F::Output: Responder + 'static,
        {
            Endpoint::new(Method::$method, path, handler)
        }
    )* };
}

methods!(get GET, post POST, patch PATCH, delete DELETE);

impl Endpoint {
    fn new<F, A>(method: Method, path: &'static str, handler: F) -> Self
    where
        F: Handler<A>,
        A: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        let by_method = method.clone();
        let route = move || {
            // Whoever may read may also ask for the head alone.
            let route = match by_method {
                Method::GET => web::route().guard(guard::Any(guard::Get()).or(guard::Head())),
                _ => web::method(by_method.clone()),
            };
            route.to(handler.clone())
        };
        Self {
            method,
            path,
            route: Box::new(route),
            large_body: false,
            of_an_event: false,
            summary: "",
            details: "",
            caller: Caller::Anyone,
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            errors: Vec::new(),
        }
    }

    pub fn route(&self) -> Route {
        (self.route)()
    }

    /// The methods it takes, as the Allow header has them.
    pub fn allows(&self) -> &'static str {
        match self.method {
            Method::GET => "GET, HEAD",
            Method::POST => "POST",
            Method::PATCH => "PATCH",
            _ => "DELETE",
        }
    }

    /// What it does, in a line and in more words.
    pub fn says(mut self, summary: &'static str, details: &'static str) -> Self {
        (self.summary, self.details) = (summary, details);
        self
    }

    pub fn by(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }

    pub fn of_an_event(mut self) -> Self {
        self.of_an_event = true;
        self
    }

    /// Takes the values of a query string.
    pub fn query<T: IntoParams>(mut self) -> Self {
        self.parameters.extend(T::into_params(|| Some(ParameterIn::Query)));
        self
    }

    pub fn header(mut self, name: &'static str, required: bool, text: &'static str, example: &'static str) -> Self {
        let text_schema = ObjectBuilder::new().schema_type(Type::String).build();
        let header = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Header)
            .required(if required { Required::True } else { Required::False })
            .description(Some(text))
            .schema(Some(text_schema))
            .example(Some(example.into()))
            .build();
        self.parameters.push(header);
        self
    }

    pub fn body<T: ToSchema>(mut self) -> Self {
        self.body = Some(RequestShape { required: true, shape: Shape::of::<T>() });
        self
    }

    pub fn optional_body<T: ToSchema>(mut self) -> Self {
        self.body = Some(RequestShape { required: false, shape: Shape::of::<T>() });
        self
    }

    pub fn large_body<T: ToSchema>(mut self) -> Self {
        self.large_body = true;
        self.body::<T>()
    }

    pub fn answers<T: ToSchema>(self, text: &'static str) -> Self {
        self.answer(200, text, Content::Json(Shape::of::<T>()))
    }

    pub fn answers_list<T: ToSchema>(self, text: &'static str) -> Self {
        self.answer(200, text, Content::List(Shape::of::<T>()))
    }

    pub fn answers_items<T: ToSchema>(self, text: &'static str) -> Self {
        self.answer(200, text, Content::Items(Shape::of::<T>()))
    }

    /// A long list. The query says which page.
    pub fn answers_page<T: ToSchema>(self, text: &'static str) -> Self {
        self.answer(200, text, Content::Page(Shape::of::<T>()))
    }

    /// The same answer, when Redis could not be told yet.
    pub fn accepts<T: ToSchema>(self, text: &'static str) -> Self {
        self.answer(202, text, Content::Json(Shape::of::<T>()))
    }

    pub fn answers_nothing(self, text: &'static str) -> Self {
        self.answer(204, text, Content::Nothing)
    }

    pub fn not_modified(self, text: &'static str) -> Self {
        self.answer(304, text, Content::Nothing)
    }

    pub fn streams(self, text: &'static str) -> Self {
        self.answer(200, text, Content::Stream)
    }

    fn answer(mut self, status: u16, text: &'static str, content: Content) -> Self {
        self.answers.push(Answer { status, text, content, headers: Vec::new() });
        self
    }

    /// A header of all answers so far.
    pub fn with_header(mut self, name: &'static str, text: &'static str) -> Self {
        self.answers.iter_mut().for_each(|answer| answer.headers.push((name, text)));
        self
    }

    pub fn errors(mut self, errors: impl IntoIterator<Item = Error>) -> Self {
        self.errors.extend(errors);
        self
    }
}
