/* server/decisions: answers that are read and not generated. A question over a text is one prompt;
 * its answer is the probabilities of a few labels, tokens that may come next.
 *
 *   request.c    /v1/decisions: predicates, choices and scores over one input
 *   systemone.c  /v1/systemone: such questions in TypeSafe's form
 *   pairs.c      prompts of a query and a document, and their scores
 *   rerank.c     /v1/rerank: how well documents fit a query
 *   score.c      /v1/score: the scores of pairs
 *   labels.c     labels of one token, and their probabilities
 *
 * Pure functions over strings: no sockets, no threads, no model.
 *
 * Specifications: https://platform.openai.com/docs/api-reference/decisions,
 * https://docs.typesafe.ai/api, and
 * https://docs.cohere.com/reference/rerank and https://jina.ai/reranker for the rankings. */
#ifndef PENSTOCK_SERVER_DECISIONS_H
#define PENSTOCK_SERVER_DECISIONS_H

#include "server/openai/openai.h"

extern const struct api api_decisions, api_systemone, api_rerank, api_rerank_short,
    api_rerank_cohere, api_reranking, api_score;

#endif
