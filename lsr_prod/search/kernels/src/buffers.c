#include "buffers.h"

#include "kernels.h"

void release(Buffers *buffers) {
    while (buffers->count) PyBuffer_Release(&buffers->views[--buffers->count]);
}

void *take(Buffers *buffers, PyObject *array, const char *name, Py_ssize_t size, bool writable, int64_t *items) {
    Py_buffer *view = &buffers->views[buffers->count];
    if (PyObject_GetBuffer(array, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE)) return NULL;
    buffers->count++;
    if (view->itemsize != size) {
        PyErr_Format(PyExc_TypeError, "%s has items of %zd bytes; they must have %zd", name, view->itemsize, size);
        return NULL;
    }
    if (items && *items < 0) *items = view->len / size;
    if (items && *items != view->len / size) {
        PyErr_Format(PyExc_ValueError, "%s has %zd items; it must have %lld", name, view->len / size,
                     (long long)*items);
        return NULL;
    }
    return view->buf;
}

void *take_either(Buffers *buffers, PyObject *array, const char *name, Py_ssize_t narrow, Py_ssize_t wide,
                  bool writable, int64_t *items, bool *is_wide) {
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)) return NULL;
    *is_wide = view.itemsize == wide;
    PyBuffer_Release(&view);
    return take(buffers, array, name, *is_wide ? wide : narrow, writable, items);
}

PyObject *number_or_error(int state) {
    return state == NO_MEMORY ? PyErr_NoMemory() : PyLong_FromLong(state);
}
