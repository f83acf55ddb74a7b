//! The routes of what is stored, as the document tells them.

use super::parameters::Parameter;
use super::routes::{Answer, OPEN, Route};

/// A row per route, as in `routes`.
pub(super) const STORED: &[Route] = &[
    Route {
        path: "/v1/chat/completions",
        name: "listChatCompletions",
        summary: "Stored chat completions.",
        parameters: &[Parameter::After, Parameter::Limit, Parameter::Order],
        answer: Answer::Json("StoredList"),
        ..OPEN
    },
    Route {
        path: "/v1/chat/completions/{id}",
        name: "retrieveChatCompletion",
        summary: "A stored chat completion.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/chat/completions/{id}",
        name: "updateChatCompletion",
        summary: "Give a stored chat completion other metadata.",
        request: &["ConversationRequest"],
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        method: "delete",
        path: "/v1/chat/completions/{id}",
        name: "deleteChatCompletion",
        summary: "Forget a chat completion.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredDeleted"),
        ..OPEN
    },
    Route {
        path: "/v1/chat/completions/{id}/messages",
        name: "listChatMessages",
        summary: "The messages of a stored chat completion.",
        parameters: &[Parameter::Id, Parameter::After, Parameter::Limit, Parameter::Order],
        answer: Answer::Json("StoredList"),
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/conversations",
        name: "createConversation",
        summary: "Begin a conversation.",
        request: &["ConversationRequest"],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        path: "/v1/conversations/{id}",
        name: "retrieveConversation",
        summary: "A conversation without its items.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/conversations/{id}",
        name: "updateConversation",
        summary: "Give a conversation other metadata.",
        request: &["ConversationRequest"],
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        method: "delete",
        path: "/v1/conversations/{id}",
        name: "deleteConversation",
        summary: "Forget a conversation and its items.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredDeleted"),
        ..OPEN
    },
    Route {
        path: "/v1/conversations/{id}/items",
        name: "listConversationItems",
        summary: "The items of a conversation.",
        parameters: &[
            Parameter::Id,
            Parameter::After,
            Parameter::Limit,
            Parameter::Order,
            Parameter::Include,
        ],
        answer: Answer::Json("StoredList"),
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/conversations/{id}/items",
        name: "createConversationItems",
        summary: "Add items to a conversation.",
        request: &["ConversationItemsRequest"],
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredList"),
        ..OPEN
    },
    Route {
        path: "/v1/conversations/{id}/items/{item}",
        name: "retrieveConversationItem",
        summary: "An item of a conversation.",
        parameters: &[Parameter::Id, Parameter::Item],
        answer: Answer::Json("ResponseItem"),
        ..OPEN
    },
    Route {
        method: "delete",
        path: "/v1/conversations/{id}/items/{item}",
        name: "deleteConversationItem",
        summary: "Take an item out of a conversation.",
        parameters: &[Parameter::Id, Parameter::Item],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        path: "/v1/files",
        name: "listFiles",
        summary: "Files, of one purpose if it is named.",
        parameters: &[Parameter::After, Parameter::FileLimit, Parameter::Order, Parameter::Purpose],
        answer: Answer::Json("StoredList"),
        ..OPEN
    },
    Route {
        path: "/v1/files/{id}",
        name: "retrieveFile",
        summary: "What is known of a file.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        method: "delete",
        path: "/v1/files/{id}",
        name: "deleteFile",
        summary: "Forget a file.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredDeleted"),
        ..OPEN
    },
    Route {
        path: "/v1/files/{id}/content",
        name: "downloadFile",
        summary: "The contents of a file.",
        parameters: &[Parameter::Id],
        answer: Answer::Bytes,
        ..OPEN
    },
    Route {
        path: "/v1/batches",
        name: "listBatches",
        summary: "Batches, the newest first.",
        parameters: &[Parameter::After, Parameter::Limit, Parameter::Order],
        answer: Answer::Json("StoredList"),
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/batches",
        name: "createBatch",
        summary: "Run the lines of a file when nothing else needs the engine.",
        request: &["BatchRequest"],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        path: "/v1/batches/{id}",
        name: "retrieveBatch",
        summary: "A batch and how far it is.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/batches/{id}/cancel",
        name: "cancelBatch",
        summary: "Run no more lines of a batch.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        path: "/v1/messages/batches",
        name: "listMessageBatches",
        summary: "Batches of messages, the newest first.",
        parameters: &[Parameter::AfterId, Parameter::BeforeId, Parameter::BatchLimit],
        answer: Answer::Json("MessageBatchList"),
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/messages/batches",
        name: "createMessageBatch",
        summary: "Run requests for messages when nothing else needs the engine.",
        request: &["MessageBatchRequest"],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        path: "/v1/messages/batches/{id}",
        name: "retrieveMessageBatch",
        summary: "A batch of messages and how far it is.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        method: "delete",
        path: "/v1/messages/batches/{id}",
        name: "deleteMessageBatch",
        summary: "Forget a batch of messages that has ended.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/messages/batches/{id}/cancel",
        name: "cancelMessageBatch",
        summary: "Run no more requests of a batch.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
    Route {
        path: "/v1/messages/batches/{id}/results",
        name: "listMessageBatchResults",
        summary: "The answers of a batch of messages, line by line.",
        parameters: &[Parameter::Id],
        answer: Answer::Bytes,
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/files",
        name: "createFile",
        summary: "Upload a file as a form.",
        request: &["FileUpload"],
        answer: Answer::Json("StoredObject"),
        ..OPEN
    },
];
