/* The plan of a model: one flat, position-independent, little-endian block of bytes that the
 * compiler writes and the runtime walks in place.
 *
 * A header, then sections, each an array of one record type at an 8-byte aligned offset. Records
 * refer to each other by index. The runtime believes none of it before it has checked every index
 * and size.
 *
 * Quantity: an int64 that is known or computed at run time. >= 0 is the number itself; q < 0 is the
 * value of slot -1 - q. The first slots are the model's symbols (named dimensions, bound from the
 * shapes of the inputs); the others are written by shape code.
 */
#ifndef MCC_PLAN_FORMAT_H
#define MCC_PLAN_FORMAT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MCC_PLAN_MAGIC "MCCPLAN" /* 8 bytes with its zero */
#define MCC_PLAN_VERSION 3u
#define MCC_PLAN_NONE 0xffffffffu     /* no value, no graph, no slot */
#define MCC_PLAN_MAX_GRAPH_DEPTH 64u  /* sub-graphs inside sub-graphs */
#define MCC_PLAN_MAX_SLOTS (1u << 20) /* also the limit for heap blocks */

typedef int64_t mcc_quantity;
#define MCC_QUANTITY_OF_SLOT(slot) (-1 - (int64_t)(slot))
#define MCC_SLOT_OF_QUANTITY(quantity) ((uint64_t)(-1 - (quantity)))

/* Section kinds: X(enumerator, record type). The order is the order in the header's table. */
#define MCC_PLAN_SECTIONS(X)     \
  X(strings, char)               \
  X(bytes, unsigned char)        \
  X(names, mcc_plan_string)      \
  X(metadata, mcc_plan_metadata) \
  X(features, mcc_plan_string)   \
  X(symbols, mcc_plan_symbol)    \
  X(quantities, mcc_quantity)    \
  X(indices, uint32_t)           \
  X(values, mcc_plan_value)      \
  X(nodes, mcc_plan_node)        \
  X(graphs, mcc_plan_graph)      \
  X(code, mcc_plan_instruction)

enum {
#define MCC_PLAN_SECTION_ENUM(name, type) MCC_PLAN_SECTION_##name,
  MCC_PLAN_SECTIONS(MCC_PLAN_SECTION_ENUM)
#undef MCC_PLAN_SECTION_ENUM
      MCC_PLAN_SECTION_COUNT
};

typedef struct mcc_plan_section {
  uint64_t offset; /* from the start of the plan, a multiple of 8 */
  uint64_t count;  /* records */
} mcc_plan_section;

typedef struct mcc_plan_header {
  char magic[8];
  uint32_t version;
  uint32_t header_size;
  uint64_t total_size;
  uint64_t checksum; /* mcc_plan_checksum of the bytes after this field */
  mcc_quantity arena_size;
  uint64_t weights_size;
  uint64_t scratch_per_thread; /* bytes, a multiple of MCC_BUFFER_ALIGNMENT */
  uint32_t slot_count;         /* symbols included */
  uint32_t heap_count;         /* blocks that host functions and shape code may grow */
  mcc_plan_section sections[MCC_PLAN_SECTION_COUNT];
} mcc_plan_header;

/* A text in the strings section; a zero byte follows it. */
typedef struct mcc_plan_string {
  uint32_t offset;
  uint32_t size;
} mcc_plan_string;

/* A run of records in another section. */
typedef struct mcc_plan_range {
  uint32_t begin;
  uint32_t count;
} mcc_plan_range;

/* Provenance and other facts; sorted by key. Keys that the runtime or mcc read:
 * mcc.version, target, model.name, model.hash, log.hash, options, weights.file, weights.id. */
typedef struct mcc_plan_metadata {
  mcc_plan_string key;
  mcc_plan_string value;
} mcc_plan_metadata;

/* A named dimension; symbol i is slot i. An input that gives it a size outside of [min, max] is
 * refused. */
typedef struct mcc_plan_symbol {
  mcc_plan_string name;
  int64_t min;
  int64_t max;
} mcc_plan_symbol;

/* Where the bytes of a value are. */
typedef enum mcc_storage {
  MCC_STORAGE_arena = 0,
  MCC_STORAGE_weights = 1,
  MCC_STORAGE_input = 2,  /* the caller's memory of input `index` */
  MCC_STORAGE_output = 3, /* the caller's memory of output `index` */
  MCC_STORAGE_scratch =
      4, /* per-thread: worker w of a kernel that asked for s bytes uses [w * s, (w + 1) * s) */
  MCC_STORAGE_heap = 5, /* block `index`, grown by host functions and shape code */
  MCC_STORAGE_COUNT = 6
} mcc_storage;

/* A tensor as a kernel sees it: physical dimensions, row-major, dense. Several values may share
 * bytes. */
typedef struct mcc_plan_value {
  mcc_plan_string name;
  uint16_t dtype;
  uint16_t rank;
  uint32_t dims; /* first of `rank` records in quantities */
  uint32_t storage;
  uint32_t index;
  mcc_quantity offset; /* bytes from the start of its storage */
} mcc_plan_value;

typedef enum mcc_node_kind {
  MCC_NODE_kernel = 0, /* kernels[target](args, dims) */
  MCC_NODE_host = 1,   /* host_functions[target] */
  MCC_NODE_copy = 2,   /* args[0] to args[1], same number of bytes */
  MCC_NODE_shape = 3,  /* runs code; later nodes see the new slots */
  MCC_NODE_if = 4,     /* args[0] is a bool: runs graph `target` when true, else graph `other` (or none) */
  /* for (i = 0; i < dims[0] && (no args || args[0] is true); ++i) { slot other = i; run graph
   * `target`; } `other` may be none. Branches and bodies read and write the values of their
   * surroundings; the compiler adds copy nodes for carried values, and computes the place of
   * scanned slices from the slot. */
  MCC_NODE_loop = 5,
  /* Kernel `target` of the code for GPUs. dims are those of the kernel's function, then sizes of its grids that follow from them. In a
   * plan with one, all values are in the GPU's memory, and no node is a kernel, a host function or text. A shape node loads all that it
   * loads before the rest of its code runs; code of graphs loads nothing. */
  MCC_NODE_device = 6,
  MCC_NODE_text = 7, /* `target` is an mcc_text_op */
  MCC_NODE_draw =
      8, /* args[0], i64 [2]: a key and a position, which say what random numbers kernels make; attributes: mcc_plan_draw */
  MCC_NODE_COUNT = 9
} mcc_node_kind;

/* Text. Tensors of strings are i64 tensors of ids inside of a model: positions in the session's table of strings, in which no text
 * stands twice. The table begins with the model's own strings, and forgets all others when a run begins. Texts in attributes: a
 * uint64 count, count uint64 ends, then the bytes, where text i begins with the end of text i - 1. Tensors of one node have the same
 * dimensions unless said otherwise. */
typedef enum mcc_text_op {
  MCC_TEXT_table =
      0, /* no arguments; attributes: the model's strings. The first node of a plan with others of this kind */
  MCC_TEXT_intern = 1, /* string -> i64 */
  MCC_TEXT_show = 2,   /* i64 -> string */
  MCC_TEXT_concat = 3, /* i64, i64 -> i64: one text behind the other */
  MCC_TEXT_count = 4,  /* i64 -> i64: how many parts; attributes: mcc_text_split and the delimiter */
  MCC_TEXT_split =
      5, /* i64 -> i64 with one more dimension for the parts, filled up with ""; the same attributes */
  MCC_TEXT_normalize =
      6, /* i64 [n] -> i64 [n] or i64 [max(n, 1)], i64 [] (may be left out): those that are no stop words, and
                             how many ("" counts where there is none); attributes: mcc_text_normalize, then the stop words as texts */
  MCC_TEXT_match = 7,  /* i64 -> bool; attributes: mcc_text_automaton and its tables */
  MCC_TEXT_parse = 8,  /* i64 -> f32, f64, i64 or u64 */
  MCC_TEXT_format = 9, /* f64, i64 or u64 -> i64 */
  MCC_TEXT_rank = 10,  /* i64 -> i64: how many different texts of the tensor come before it, by their bytes */
  MCC_TEXT_OP_COUNT = 11
} mcc_text_op;

typedef struct mcc_text_split {
  int64_t most;            /* parts; -1: as many as there are */
  uint64_t delimiter_size; /* 0: any white space, none of which stays around parts */
} mcc_text_split;

typedef struct mcc_text_normalize {
  uint32_t change;            /* 0: none, 1: to lower case, 2: to upper case */
  uint32_t is_case_sensitive; /* comparing with stop words */
} mcc_text_normalize;

/* A deterministic automaton over bytes. Behind it: uint8 classes[256], uint8 accepts[states], padding to a multiple of 4, uint32
 * next[states][classes]. */
typedef struct mcc_text_automaton {
  uint32_t states, classes, start, reserved;
} mcc_text_automaton;

/* The key is the seed, or the session's. The position is stream << MCC_DRAW_EXECUTION_BITS | how often the session has executed the
 * node before, of which the lowest MCC_DRAW_EXECUTION_BITS bits count. */
#define MCC_DRAW_EXECUTION_BITS 40
typedef struct mcc_plan_draw {
  uint64_t seed;
  uint32_t has_seed;
  uint32_t stream; /* below 2^24 */
} mcc_plan_draw;

typedef struct mcc_plan_node {
  uint32_t kind;
  uint32_t target;
  uint32_t other;
  uint32_t output_count;     /* how many of args, at the end, are written (workspaces count as written) */
  mcc_plan_range args;       /* indices -> values; MCC_PLAN_NONE for an absent optional input */
  mcc_plan_range dims;       /* quantities */
  mcc_plan_range code;       /* shape nodes */
  mcc_plan_range attributes; /* bytes of a host, text or draw node, begin a multiple of 8 */
  mcc_plan_range sources;    /* names of the ONNX nodes that it came from */
  mcc_plan_string name;
  mcc_plan_string schedule; /* the trace of the kernel, for people, after lines that say which task it is of
                               and where it is from, "# task ID", "# from default"; of several GPUs one trace after
                               the other, each behind "# for sm_80 sm_90, launches FIRST COUNT"; may be empty */
  mcc_quantity flops;       /* arithmetic operations of one execution */
  mcc_quantity bytes;       /* bytes that one execution must move at least */
} mcc_plan_node;

/* Graph 0 is the model. A node may only run graphs with a greater index than its own graph's. */
typedef struct mcc_plan_graph {
  mcc_plan_string name;
  mcc_plan_range nodes;
  mcc_plan_range code;    /* run on entry; for graph 0, when the shapes of the inputs have changed */
  mcc_plan_range inputs;  /* indices -> values; of graph 0: input i has storage input and index i */
  mcc_plan_range outputs; /* indices -> values; of graph 0: storage output with index i, else copied
                             from where it is */
} mcc_plan_graph;

/* Shape code: slot = op(a, b, c). Overflow, division by zero and a failed check stop the run. */
typedef enum mcc_shape_op {
  MCC_SHAPE_move = 0,
  MCC_SHAPE_add = 1,
  MCC_SHAPE_sub = 2,
  MCC_SHAPE_mul = 3,
  MCC_SHAPE_floordiv = 4,
  MCC_SHAPE_ceildiv = 5,
  MCC_SHAPE_mod = 6, /* sign of the divisor, as floordiv leaves it */
  MCC_SHAPE_min = 7,
  MCC_SHAPE_max = 8,
  MCC_SHAPE_equal = 9,
  MCC_SHAPE_less = 10,
  MCC_SHAPE_less_equal = 11,
  MCC_SHAPE_and = 12,
  MCC_SHAPE_or = 13,
  MCC_SHAPE_not = 14,
  MCC_SHAPE_select = 15,  /* a ? b : c */
  MCC_SHAPE_load = 16,    /* element b of value a (an index, not a quantity), of an integer or bool type */
  MCC_SHAPE_threads = 17, /* of the session */
  MCC_SHAPE_check = 18,   /* a != 0, else the run fails with message */
  MCC_SHAPE_grow =
      19, /* heap block a (an index, not a quantity) has room for b bytes from here on, and still holds its first c */
  MCC_SHAPE_same =
      20, /* 1 if output b is in the caller's memory that input a is in, with as many bytes, else 0 (numbers among the
                             model's inputs and outputs, not quantities); in the code of the model's own graph */
  MCC_SHAPE_OP_COUNT = 21
} mcc_shape_op;

typedef struct mcc_plan_instruction {
  uint32_t op;
  uint32_t slot; /* MCC_PLAN_NONE for check and grow */
  mcc_quantity a;
  mcc_quantity b;
  mcc_quantity c;
  mcc_plan_string message;
} mcc_plan_instruction;

/* The header in front of the weights in a side file; the weights start at MCC_WEIGHTS_FILE_DATA. */
#define MCC_WEIGHTS_FILE_MAGIC "MCCWGHT"
#define MCC_WEIGHTS_FILE_DATA 4096u
typedef struct mcc_weights_file_header {
  char magic[8];
  uint64_t size;
  char id[64]; /* the plan's metadata weights.id, padded with zeros */
} mcc_weights_file_header;

/* FNV-1a over 64-bit words, the rest byte by byte. Finds damage, not intent. */
static inline uint64_t mcc_plan_checksum(const unsigned char* bytes, uint64_t size) {
  uint64_t hash = 0xcbf29ce484222325u;
  uint64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word = 0;
    for (int k = 7; k >= 0; --k)
      word = word << 8 | bytes[i + (uint64_t)k];
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  for (; i < size; ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

/* Where the checked bytes start. */
#define MCC_PLAN_CHECKED_FROM 32u

#ifdef __cplusplus
}
#endif

#endif
