/* What the Python side of the kernels shares: arrays come as buffers whose item sizes and lengths are checked. */
#ifndef LSR_PROD_BUFFERS_H
#define LSR_PROD_BUFFERS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#define MOST 20 /* buffers of one call */

/* Buffers of one call, released together. */
typedef struct {
    Py_buffer views[MOST];
    int count;
} Buffers;

void release(Buffers *buffers);

/* Take an array whose items have `size` bytes; `items` is its length, or gets it where it is negative. NULL: an error
 * is set. */
void *take(Buffers *buffers, PyObject *array, const char *name, Py_ssize_t size, bool writable, int64_t *items);

/* Take an array whose items have `narrow` or `wide` bytes. */
void *take_either(Buffers *buffers, PyObject *array, const char *name, Py_ssize_t narrow, Py_ssize_t wide,
                  bool writable, int64_t *items, bool *is_wide);

/* The state as a number; an error is set if there was no memory. */
PyObject *number_or_error(int state);

#endif
