/* The code of a model for GPUs: one flat, position-independent, little-endian block of bytes beside the plan. A header, then
 * sections, each an array of one record type at a 16-byte aligned offset. Records refer to each other by index. The runtime
 * believes none of it before it has checked every index and size.
 *
 * A kernel is a sequence of launches that a device node of the plan carries out. Each kernel has images: PTX, which the
 * driver compiles for any GPU of that architecture or a later one, and machine code (cubins) for single architectures. Each
 * image has launches of its own: architectures with other schedules have other grids.
 */
#ifndef MCC_DEVICE_FORMAT_H
#define MCC_DEVICE_FORMAT_H

#include <stdint.h>

#include "mcc/plan_format.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MCC_DEVICE_MAGIC "MCCCUDA" /* 8 bytes with its zero */
#define MCC_DEVICE_VERSION 8u
/* The same, with numbers that only a run knows: of the node's dims (MCC_DEVICE_DIM). */
#define MCC_DEVICE_VERSION_OPEN 9u
/* The same, of a plan with other nodes than launches and copies: data decides sizes, or what runs. */
#define MCC_DEVICE_VERSION_DATA 10u

/* X(enumerator, record type). The order is the order in the header's table. */
#define MCC_DEVICE_SECTIONS(X)   \
  X(strings, char)               \
  X(kernels, mcc_device_kernel)  \
  X(launches, mcc_device_launch) \
  X(arguments, uint32_t)         \
  X(maps, mcc_device_map)        \
  X(products, mcc_device_product) \
  X(images, mcc_device_image)    \
  X(figures, mcc_device_figures) \
  X(code, unsigned char)

enum {
#define MCC_DEVICE_SECTION_ENUM(name, type) MCC_DEVICE_SECTION_##name,
  MCC_DEVICE_SECTIONS(MCC_DEVICE_SECTION_ENUM)
#undef MCC_DEVICE_SECTION_ENUM
      MCC_DEVICE_SECTION_COUNT
};

typedef struct mcc_device_header {
  char magic[8];
  uint32_t version;
  uint32_t header_size;
  uint64_t total_size;
  uint64_t checksum; /* mcc_plan_checksum of the bytes after this field */
  mcc_plan_section sections[MCC_DEVICE_SECTION_COUNT];
} mcc_device_header;

typedef struct mcc_device_kernel {
  mcc_plan_range launches; /* of all images */
  mcc_plan_range images;
} mcc_device_kernel;

/* A matrix of which a kernel copies boxes: `height` rows of `width` elements, one behind the other. A launch takes the map that
 * cuTensorMapEncodeTiled makes of it, 128 bytes by value. */
typedef struct mcc_device_map {
  uint64_t width, height;
  uint32_t argument; /* whose address it is: a number into the node's args */
  uint32_t element_bytes;
  uint32_t box_width, box_height;
  uint32_t swizzle; /* bytes of a row of a box: 32, 64 or 128 */
  uint32_t reserved;
} mcc_device_map;

/* A matrix as it lies: `columns` times `rows` elements one behind the other, `leading` elements from each to the next. */
typedef struct mcc_device_matrix {
  uint32_t dtype; /* mcc_dtype: f32, f16 or bf16 */
  uint32_t is_transposed;
  uint64_t rows, columns, leading;
  uint64_t batch_stride; /* elements from one matrix to the next; 0: the same for all */
} mcc_device_matrix;

typedef enum mcc_product_compute {
  MCC_COMPUTE_f32 = 0,
  MCC_COMPUTE_tf32 = 1, /* operands in f32 of which as many bits count as tf32 has */
  MCC_COMPUTE_COUNT = 2
} mcc_product_compute;

#define MCC_MOST_ALGORITHMS 16u

/* For each of `batches`: result = scale * first * second + addend + bias, computed by cuBLASLt. The arguments of its launch are
 * first, second, result, the addend and the bias (result.rows elements, for each column) where it has them, and
 * memory of which the library may use workspace_bytes from the next multiple of 256 on. */
typedef struct mcc_device_product {
  uint32_t compute;
  uint32_t algorithm; /* of those that the library names, best first; below MCC_MOST_ALGORITHMS */
  uint32_t has_addend, has_bias;
  uint64_t batches;
  double scale;
  mcc_device_matrix first, second, addend, result;
  uint64_t workspace_bytes;
} mcc_device_product;

/* In a grid or among arguments: dimension `number` of the node's dims in place of a constant or an address. */
#define MCC_DEVICE_DIM(number) (0x80000000u | (number))
#define MCC_DEVICE_IS_DIM(entry) (((entry) & 0x80000000u) != 0)
#define MCC_DEVICE_DIM_NUMBER(entry) ((entry) & 0x7fffffffu)

/* Among arguments: the iteration of the loop around the launch, or a number, both passed in 64 bits. */
#define MCC_DEVICE_TURN 0x7fffffffu
#define MCC_DEVICE_MOST_NUMBER 0x3fffffffu
#define MCC_DEVICE_NUMBER(number) (0x40000000u | (number))
#define MCC_DEVICE_IS_NUMBER(entry) (((entry) & 0xc0000000u) == 0x40000000u && (entry) != MCC_DEVICE_TURN)
#define MCC_DEVICE_NUMBER_OF(entry) ((entry) & 0x3fffffffu)

/* The most blocks of a grid. */
#define MCC_DEVICE_MOST_BLOCKS_X 0x7fffffffu
#define MCC_DEVICE_MOST_BLOCKS_YZ 0xffffu

/* One launch of entry(arguments..., maps...): arguments are addresses, numbers into the node's args, or dimensions, numbers and the
 * iteration, which are passed in 64 bits. Or, where it has a product, a call of the library. Launches may be the body of a loop that the
 * host carries out (the steps of a recurrence); no loop stands in another one. */
typedef struct mcc_device_launch {
  mcc_plan_string entry;
  uint32_t
      grid[3]; /* blocks along x, y, z, or dimensions that say how many; nothing is launched where one is 0 */
  uint32_t block[3];
  uint32_t shared_bytes;         /* of a block */
  uint32_t dynamic_shared_bytes; /* of these, what the launch has to ask for */
  uint32_t waits_itself; /* 1: it waits for the launches before it (griddepcontrol.wait), and may begin before they have ended */
  uint32_t loop_launches; /* of the body of a loop that begins here, this one included; 0: none does */
  uint32_t loop_first;    /* its first iteration */
  uint32_t loop_turns;    /* how many it has, or a dimension that says so */
  mcc_plan_range arguments;
  mcc_plan_range maps;
  mcc_plan_range products; /* one at most */
  mcc_plan_range figures;
} mcc_device_launch;

typedef enum mcc_image_kind {
  MCC_IMAGE_ptx = 0, /* text, a zero byte follows it */
  MCC_IMAGE_cubin = 1,
  MCC_IMAGE_COUNT = 2
} mcc_image_kind;

typedef struct mcc_device_image {
  uint32_t kind;
  uint32_t sm;          /* 80: made for compute capability 8.0 */
  uint32_t is_specific; /* for this architecture alone ("sm_90a") */
  uint32_t reserved;
  mcc_plan_string arch; /* "sm_80" */
  mcc_plan_range launches; /* among those of the kernel */
  uint64_t offset; /* in code, a multiple of 16 */
  uint64_t size;   /* without PTX's zero */
} mcc_device_image;

/* What the assembler said of a launch's entry on one architecture. */
typedef struct mcc_device_figures {
  mcc_plan_string arch;
  uint32_t registers; /* of a thread */
  uint32_t shared_bytes;
  uint32_t stack_bytes;
  uint32_t spill_stores; /* bytes of a thread */
  uint32_t spill_loads;
  uint32_t reserved;
} mcc_device_figures;

/* Where the checked bytes start. */
#define MCC_DEVICE_CHECKED_FROM 32u

#ifdef __cplusplus
}
#endif

#endif
